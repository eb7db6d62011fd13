/* Names that the C library, C++, CUDA or HIP declare, or that are the last words of names of the kit: each of them may be
   that of a tile. From <unistd.h>, <math.h>, <string.h>, <stdlib.h>, <time.h> and <stdio.h> of glibc, CUDA's math_functions.h,
   and others; without the types of numbers after the first (sinf32, sinf64x), and without those that are macros for an object. */
#ifndef FLEET_TEST_NAMES_H
#define FLEET_TEST_NAMES_H

/* clang-format off */
#define NAMES_8(TILE, P, a, b, c, d, e, f, g, h) \
    TILE(P, a) TILE(P, b) TILE(P, c) TILE(P, d) TILE(P, e) TILE(P, f) TILE(P, g) TILE(P, h)
#define NAMES(TILE, P) \
    NAMES_8(TILE, P, a64l, abort, abs, absent, access, acct, acos, acosf) \
    NAMES_8(TILE, P, acosh, acoshf, acoshl, acosl, advance, alarm, aligned_alloc, alloca) \
    NAMES_8(TILE, P, arc4random, arc4random_buf, arc4random_uniform, args, asctime, asin, \
        asinf, asinh) \
    NAMES_8(TILE, P, asinhf, asinhl, asinl, asprintf, assert, at, at_quick_exit, atan) \
    NAMES_8(TILE, P, atan2, atan2f, atan2l, atanf, atanh, atanhf, atanhl, atanl) \
    NAMES_8(TILE, P, atexit, atof, atoi, atol, atoll, atomicAdd, atomicCAS, awaits) \
    NAMES_8(TILE, P, basename, bcmp, bcopy, begin, blockDim, blockIdx, brk, bsearch) \
    NAMES_8(TILE, P, bzero, calloc, canonicalize, canonicalize_file_name, canonicalizef, \
        canonicalizel, cbrt, cbrtf) \
    NAMES_8(TILE, P, cbrtl, ceil, ceilf, ceill, chdir, chown, chroot, clearenv) \
    NAMES_8(TILE, P, clearerr, clock, clock64, clock_adjtime, clock_getcpuclockid, \
        clock_getres, clock_gettime, clock_nanosleep) \
    NAMES_8(TILE, P, clock_settime, close, close_range, closefrom, confstr, context, copy, \
        copy_file_range) \
    NAMES_8(TILE, P, copysign, copysignf, copysignl, cos, cosf, cosh, coshf, coshl) \
    NAMES_8(TILE, P, cosl, cospi, cospif, count, crypt, ctermid, ctime, ctx) \
    NAMES_8(TILE, P, cudaFree, cudaMalloc, cuserid, cyl_bessel_i0, cyl_bessel_i0f, \
        cyl_bessel_i1, cyl_bessel_i1f, daddl) \
    NAMES_8(TILE, P, daemon, data, daylight, ddivl, dfmal, difftime, dim3, dispatch) \
    NAMES_8(TILE, P, distance, div, div_t, dmull, dprintf, drand48, drem, dremf) \
    NAMES_8(TILE, P, dreml, dsqrtl, dsubl, dup, dup2, dup3, dysize, eaccess) \
    NAMES_8(TILE, P, ecvt, empty, end, ends_run, endusershell, environ, erand48, erf) \
    NAMES_8(TILE, P, erfc, erfcf, erfcinv, erfcinvf, erfcl, erfcx, erfcxf, erff) \
    NAMES_8(TILE, P, erfinv, erfinvf, erfl, euidaccess, execl, execle, execlp, execv) \
    NAMES_8(TILE, P, execve, execveat, execvp, execvpe, exit, exp, exp10, exp10f) \
    NAMES_8(TILE, P, exp10l, exp2, exp2f, exp2l, expf, expl, explicit_bzero, expm1) \
    NAMES_8(TILE, P, expm1f, expm1l, fabs, fabsf, fabsl, faccessat, fadd, faddl) \
    NAMES_8(TILE, P, failed, fchdir, fchown, fchownat, fclose, fcloseall, fcvt, fdatasync) \
    NAMES_8(TILE, P, fdim, fdimf, fdiml, fdiv, fdivl, fdopen, feof, ferror) \
    NAMES_8(TILE, P, fexecve, fflush, ffma, ffmal, ffs, ffsl, ffsll, fgetc) \
    NAMES_8(TILE, P, fgetpos, fgets, fileno, fill, find, finite, finitef, finitel) \
    NAMES_8(TILE, P, float4, flockfile, floor, floorf, floorl, fma, fmaf, fmal) \
    NAMES_8(TILE, P, fmax, fmaxf, fmaximum, fmaximum_mag, fmaximum_mag_num, fmaximum_mag_numf, \
        fmaximum_mag_numl, fmaximum_magf) \
    NAMES_8(TILE, P, fmaximum_magl, fmaximum_num, fmaximum_numf, fmaximum_numl, fmaximumf, \
        fmaximuml, fmaxl, fmaxmag) \
    NAMES_8(TILE, P, fmaxmagf, fmaxmagl, fmemopen, fmin, fminf, fminimum, fminimum_mag, \
        fminimum_mag_num) \
    NAMES_8(TILE, P, fminimum_mag_numf, fminimum_mag_numl, fminimum_magf, fminimum_magl, \
        fminimum_num, fminimum_numf, fminimum_numl, fminimumf) \
    NAMES_8(TILE, P, fminimuml, fminl, fminmag, fminmagf, fminmagl, fmod, fmodf, fmodl) \
    NAMES_8(TILE, P, fmul, fmull, fopen, fopencookie, fork, fpathconf, fprintf, fputc) \
    NAMES_8(TILE, P, fputs, fread, free, freopen, frexp, frexpf, frexpl, fromfp) \
    NAMES_8(TILE, P, fromfpf, fromfpl, fromfpx, fromfpxf, fromfpxl, fscanf, fseek, fseeko) \
    NAMES_8(TILE, P, fsetpos, fsqrt, fsqrtl, fsub, fsubl, fsync, ftell, ftello) \
    NAMES_8(TILE, P, ftruncate, ftrylockfile, funlockfile, fwrite, gamma, gammaf, gammal, \
        gcvt) \
    NAMES_8(TILE, P, get_current_dir_name, getc, getchar, getcwd, getdate, getdelim, \
        getdomainname, getdtablesize) \
    NAMES_8(TILE, P, getegid, getentropy, getenv, geteuid, getgid, getgroups, gethostid, \
        gethostname) \
    NAMES_8(TILE, P, getline, getloadavg, getlogin, getopt, getpagesize, getpass, getpayload, \
        getpayloadf) \
    NAMES_8(TILE, P, getpayloadl, getpgid, getpgrp, getpid, getppid, getpt, getresgid, \
        getresuid) \
    NAMES_8(TILE, P, getsid, getsubopt, gettid, getuid, getusershell, getw, getwd, gmtime) \
    NAMES_8(TILE, P, grantpt, gridDim, group_member, hash_combine, hipFree, hipMalloc, hypot, \
        hypotf) \
    NAMES_8(TILE, P, hypotl, ilogb, ilogbf, ilogbl, index, initstate, int32_t, isatty) \
    NAMES_8(TILE, P, isinf, isinff, isinfl, isnan, isnanf, isnanl, j0, j0f) \
    NAMES_8(TILE, P, j0l, j1, j1f, j1l, jn, jnf, jnl, jrand48) \
    NAMES_8(TILE, P, kill, l64a, labs, lchown, lcong48, ldexp, ldexpf, ldexpl) \
    NAMES_8(TILE, P, ldiv, ldiv_t, lgamma, lgammaf, lgammal, link, linkat, llabs) \
    NAMES_8(TILE, P, lldiv, llmax, llmin, llogb, llogbf, llogbl, llrint, llrintf) \
    NAMES_8(TILE, P, llrintl, llround, llroundf, llroundl, localtime, lockf, log, log10) \
    NAMES_8(TILE, P, log10f, log10l, log1p, log1pf, log1pl, log2, log2f, log2l) \
    NAMES_8(TILE, P, logb, logbf, logbl, logf, logl, longjmp, lrand48, lrint) \
    NAMES_8(TILE, P, lrintf, lrintl, lround, lroundf, lroundl, lseek, make_float4, malloc) \
    NAMES_8(TILE, P, max, mblen, mbstowcs, mbtowc, memccpy, memchr, memcmp, memcpy) \
    NAMES_8(TILE, P, memfrob, memmem, memmove, mempcpy, memrchr, memset, min, mkdtemp) \
    NAMES_8(TILE, P, mkostemp, mkostemps, mkstemp, mkstemps, mktemp, mktime, mmap, modf) \
    NAMES_8(TILE, P, modff, modfl, move, mrand48, munmap, nan, nanf, nanl) \
    NAMES_8(TILE, P, nanosleep, nearbyint, nearbyintf, nearbyintl, nextafter, nextafterf, \
        nextafterl, nextdown) \
    NAMES_8(TILE, P, nextdownf, nextdownl, nexttoward, nexttowardf, nexttowardl, nextup, \
        nextupf, nextupl) \
    NAMES_8(TILE, P, nice, none, norm3d, norm3df, norm4d, norm4df, normcdf, normcdff) \
    NAMES_8(TILE, P, normcdfinv, normcdfinvf, normf, nrand48, obstack_printf, obstack_vprintf, \
        of, on_exit) \
    NAMES_8(TILE, P, open_memstream, optarg, opterr, optind, optopt, parameters, pathconf, \
        pause) \
    NAMES_8(TILE, P, pclose, perror, pipe, pipe2, plan, popen, posix_memalign, posix_openpt) \
    NAMES_8(TILE, P, pow, powf, powl, pread, prefetch, printf, producer, profil) \
    NAMES_8(TILE, P, pselect, pthread_create, pthread_join, ptrdiff_t, ptsname, putc, putchar, \
        putenv) \
    NAMES_8(TILE, P, puts, putw, pwrite, qecvt, qfcvt, qgcvt, qsort, quick_exit) \
    NAMES_8(TILE, P, raise, rand, random, rawmemchr, rcbrt, rcbrtf, read, readlink) \
    NAMES_8(TILE, P, readlinkat, realloc, reallocarray, realpath, remainder, remainderf, \
        remainderl, remove) \
    NAMES_8(TILE, P, remquo, remquof, remquol, rename, renameat, renameat2, revoke, rewind) \
    NAMES_8(TILE, P, rhypot, rhypotf, rindex, rint, rintf, rintl, rmdir, rnorm) \
    NAMES_8(TILE, P, rnorm3d, rnorm3df, rnorm4d, rnorm4df, rnormf, round, roundeven, \
        roundevenf) \
    NAMES_8(TILE, P, roundevenl, roundf, roundl, rpmatch, rsqrt, rsqrtf, run, sbrk) \
    NAMES_8(TILE, P, scalb, scalbf, scalbl, scalbln, scalblnf, scalblnl, scalbn, scalbnf) \
    NAMES_8(TILE, P, scalbnl, scanf, sched_yield, secure_getenv, seed48, select, session, \
        setbuf) \
    NAMES_8(TILE, P, setbuffer, setdomainname, setegid, setenv, seteuid, setgid, sethostid, \
        sethostname) \
    NAMES_8(TILE, P, setjmp, setlinebuf, setlogin, setpayload, setpayloadf, setpayloadl, \
        setpayloadsig, setpayloadsigf) \
    NAMES_8(TILE, P, setpayloadsigl, setpgid, setpgrp, setregid, setresgid, setresuid, \
        setreuid, setsid) \
    NAMES_8(TILE, P, setstate, setuid, setusershell, setvbuf, sigabbrev_np, sigdescr_np, \
        signal, signbit) \
    NAMES_8(TILE, P, signgam, significand, significandf, significandl, sin, sincos, sincosf, \
        sincosl) \
    NAMES_8(TILE, P, sincospi, sincospif, sinf, sinh, sinhf, sinhl, sinl, sinpi) \
    NAMES_8(TILE, P, sinpif, size, size_t, sleep, snprintf, sprintf, sqrt, sqrtf) \
    NAMES_8(TILE, P, sqrtl, srand, srand48, srandom, sscanf, state, stpcpy, stpncpy) \
    NAMES_8(TILE, P, strcasecmp, strcasecmp_l, strcasestr, strcat, strchr, strchrnul, strcmp, \
        strcoll) \
    NAMES_8(TILE, P, strcoll_l, strcpy, strcspn, strdup, stream, strerror, strerror_l, \
        strerrordesc_np) \
    NAMES_8(TILE, P, strerrorname_np, strfromd, strfromf, strfroml, strfry, strftime, \
        strftime_l, strlen) \
    NAMES_8(TILE, P, strncasecmp, strncasecmp_l, strncat, strncmp, strncpy, strndup, strnlen, \
        strpbrk) \
    NAMES_8(TILE, P, strptime, strptime_l, strrchr, strsep, strsignal, strspn, strstr, strtod) \
    NAMES_8(TILE, P, strtod_l, strtof, strtof128_l, strtof32_l, strtof32x_l, strtof64_l, \
        strtof64x_l, strtof_l) \
    NAMES_8(TILE, P, strtok, strtol, strtol_l, strtold, strtold_l, strtoll, strtoll_l, strtoq) \
    NAMES_8(TILE, P, strtoul, strtoul_l, strtoull, strtoull_l, strtouq, strverscmp, strxfrm, \
        strxfrm_l) \
    NAMES_8(TILE, P, swab, swap, symlink, symlinkat, sync, syncfs, syscall, sysconf) \
    NAMES_8(TILE, P, system, tan, tanf, tanh, tanhf, tanhl, tanl, tcgetpgrp) \
    NAMES_8(TILE, P, tcsetpgrp, tempnam, tex1D, tgamma, tgammaf, tgammal, thread, threadIdx) \
    NAMES_8(TILE, P, tile_count, time, time_t, timegm, timelocal, timer_create, timer_delete, \
        timer_getoverrun) \
    NAMES_8(TILE, P, timer_gettime, timer_settime, timespec, timespec_get, timespec_getres, \
        timezone, tm, tmpfile) \
    NAMES_8(TILE, P, tmpnam, totalorder, totalorderf, totalorderl, totalordermag, \
        totalordermagf, totalordermagl, trunc) \
    NAMES_8(TILE, P, truncate, truncf, truncl, ttyname, ttyslot, tzname, tzset, ualarm) \
    NAMES_8(TILE, P, ufromfp, ufromfpf, ufromfpl, ufromfpx, ufromfpxf, ufromfpxl, uint2, \
        uint32_t) \
    NAMES_8(TILE, P, ullmax, ullmin, umax, umin, ungetc, unlink, unlinkat, unlockpt) \
    NAMES_8(TILE, P, unsetenv, usleep, va_list, valloc, vasprintf, vdprintf, vfork, vfprintf) \
    NAMES_8(TILE, P, vfscanf, vhangup, vprintf, vscanf, vsnprintf, vsprintf, vsscanf, wait) \
    NAMES_8(TILE, P, wall_clock64, warpSize, wchar_t, wcstombs, wctomb, worker, write, y0) \
    NAMES_8(TILE, P, y0f, y0l, y1, y1f, y1l, yn, ynf, ynl)
/* clang-format on */

#endif
