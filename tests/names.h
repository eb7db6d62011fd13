/* Names that the C library, C++, CUDA or HIP declare, or that are the last words of names of the kit: each of them may be
   that of a tile. From <unistd.h>, <math.h>, <string.h>, <stdlib.h>, <time.h> and <stdio.h> of glibc, CUDA's math_functions.h,
   and others; without the types of numbers after the first (sinf32, sinf64x), and without those that are macros for an object. */
#ifndef FLEET_TEST_NAMES_H
#define FLEET_TEST_NAMES_H

/* clang-format off */
#define NAMES(TILE, P)                                                                             \
    TILE(P, a64l) TILE(P, abort) TILE(P, abs) TILE(P, absent) TILE(P, access) TILE(P, acct)        \
    TILE(P, acos) TILE(P, acosf) TILE(P, acosh) TILE(P, acoshf) TILE(P, acoshl) TILE(P, acosl)     \
    TILE(P, advance) TILE(P, alarm) TILE(P, aligned_alloc) TILE(P, alloca) TILE(P, arc4random)     \
    TILE(P, arc4random_buf) TILE(P, arc4random_uniform) TILE(P, args) TILE(P, asctime)             \
    TILE(P, asin) TILE(P, asinf) TILE(P, asinh) TILE(P, asinhf) TILE(P, asinhl) TILE(P, asinl)     \
    TILE(P, asprintf) TILE(P, assert) TILE(P, at) TILE(P, at_quick_exit) TILE(P, atan)             \
    TILE(P, atan2) TILE(P, atan2f) TILE(P, atan2l) TILE(P, atanf) TILE(P, atanh) TILE(P, atanhf)   \
    TILE(P, atanhl) TILE(P, atanl) TILE(P, atexit) TILE(P, atof) TILE(P, atoi) TILE(P, atol)       \
    TILE(P, atoll) TILE(P, atomicAdd) TILE(P, atomicCAS) TILE(P, awaits) TILE(P, basename)         \
    TILE(P, bcmp) TILE(P, bcopy) TILE(P, begin) TILE(P, blockDim) TILE(P, blockIdx) TILE(P, brk)   \
    TILE(P, bsearch) TILE(P, bzero) TILE(P, calloc) TILE(P, canonicalize)                          \
    TILE(P, canonicalize_file_name) TILE(P, canonicalizef) TILE(P, canonicalizel) TILE(P, cbrt)    \
    TILE(P, cbrtf) TILE(P, cbrtl) TILE(P, ceil) TILE(P, ceilf) TILE(P, ceill) TILE(P, chdir)       \
    TILE(P, chown) TILE(P, chroot) TILE(P, clearenv) TILE(P, clearerr) TILE(P, clock)              \
    TILE(P, clock64) TILE(P, clock_adjtime) TILE(P, clock_getcpuclockid) TILE(P, clock_getres)     \
    TILE(P, clock_gettime) TILE(P, clock_nanosleep) TILE(P, clock_settime) TILE(P, close)          \
    TILE(P, close_range) TILE(P, closefrom) TILE(P, confstr) TILE(P, context) TILE(P, copy)        \
    TILE(P, copy_file_range) TILE(P, copysign) TILE(P, copysignf) TILE(P, copysignl) TILE(P, cos)  \
    TILE(P, cosf) TILE(P, cosh) TILE(P, coshf) TILE(P, coshl) TILE(P, cosl) TILE(P, cospi)         \
    TILE(P, cospif) TILE(P, count) TILE(P, crypt) TILE(P, ctermid) TILE(P, ctime) TILE(P, ctx)     \
    TILE(P, cudaFree) TILE(P, cudaMalloc) TILE(P, cuserid) TILE(P, cyl_bessel_i0)                  \
    TILE(P, cyl_bessel_i0f) TILE(P, cyl_bessel_i1) TILE(P, cyl_bessel_i1f) TILE(P, daddl)          \
    TILE(P, daemon) TILE(P, data) TILE(P, daylight) TILE(P, ddivl) TILE(P, dfmal)                  \
    TILE(P, difftime) TILE(P, dim3) TILE(P, dispatch) TILE(P, distance) TILE(P, div)               \
    TILE(P, div_t) TILE(P, dmull) TILE(P, dprintf) TILE(P, drand48) TILE(P, drem) TILE(P, dremf)   \
    TILE(P, dreml) TILE(P, dsqrtl) TILE(P, dsubl) TILE(P, dup) TILE(P, dup2) TILE(P, dup3)         \
    TILE(P, dysize) TILE(P, eaccess) TILE(P, ecvt) TILE(P, empty) TILE(P, end) TILE(P, ends_run)   \
    TILE(P, endusershell) TILE(P, environ) TILE(P, erand48) TILE(P, erf) TILE(P, erfc)             \
    TILE(P, erfcf) TILE(P, erfcinv) TILE(P, erfcinvf) TILE(P, erfcl) TILE(P, erfcx)                \
    TILE(P, erfcxf) TILE(P, erff) TILE(P, erfinv) TILE(P, erfinvf) TILE(P, erfl)                   \
    TILE(P, euidaccess) TILE(P, execl) TILE(P, execle) TILE(P, execlp) TILE(P, execv)              \
    TILE(P, execve) TILE(P, execveat) TILE(P, execvp) TILE(P, execvpe) TILE(P, exit) TILE(P, exp)  \
    TILE(P, exp10) TILE(P, exp10f) TILE(P, exp10l) TILE(P, exp2) TILE(P, exp2f) TILE(P, exp2l)     \
    TILE(P, expf) TILE(P, expl) TILE(P, explicit_bzero) TILE(P, expm1) TILE(P, expm1f)             \
    TILE(P, expm1l) TILE(P, fabs) TILE(P, fabsf) TILE(P, fabsl) TILE(P, faccessat) TILE(P, fadd)   \
    TILE(P, faddl) TILE(P, failed) TILE(P, fchdir) TILE(P, fchown) TILE(P, fchownat)               \
    TILE(P, fclose) TILE(P, fcloseall) TILE(P, fcvt) TILE(P, fdatasync) TILE(P, fdim)              \
    TILE(P, fdimf) TILE(P, fdiml) TILE(P, fdiv) TILE(P, fdivl) TILE(P, fdopen) TILE(P, feof)       \
    TILE(P, ferror) TILE(P, fexecve) TILE(P, fflush) TILE(P, ffma) TILE(P, ffmal) TILE(P, ffs)     \
    TILE(P, ffsl) TILE(P, ffsll) TILE(P, fgetc) TILE(P, fgetpos) TILE(P, fgets) TILE(P, fileno)    \
    TILE(P, fill) TILE(P, find) TILE(P, finite) TILE(P, finitef) TILE(P, finitel) TILE(P, float4)  \
    TILE(P, flockfile) TILE(P, floor) TILE(P, floorf) TILE(P, floorl) TILE(P, fma) TILE(P, fmaf)   \
    TILE(P, fmal) TILE(P, fmax) TILE(P, fmaxf) TILE(P, fmaximum) TILE(P, fmaximum_mag)             \
    TILE(P, fmaximum_mag_num) TILE(P, fmaximum_mag_numf) TILE(P, fmaximum_mag_numl)                \
    TILE(P, fmaximum_magf) TILE(P, fmaximum_magl) TILE(P, fmaximum_num) TILE(P, fmaximum_numf)     \
    TILE(P, fmaximum_numl) TILE(P, fmaximumf) TILE(P, fmaximuml) TILE(P, fmaxl) TILE(P, fmaxmag)   \
    TILE(P, fmaxmagf) TILE(P, fmaxmagl) TILE(P, fmemopen) TILE(P, fmin) TILE(P, fminf)             \
    TILE(P, fminimum) TILE(P, fminimum_mag) TILE(P, fminimum_mag_num) TILE(P, fminimum_mag_numf)   \
    TILE(P, fminimum_mag_numl) TILE(P, fminimum_magf) TILE(P, fminimum_magl)                       \
    TILE(P, fminimum_num) TILE(P, fminimum_numf) TILE(P, fminimum_numl) TILE(P, fminimumf)         \
    TILE(P, fminimuml) TILE(P, fminl) TILE(P, fminmag) TILE(P, fminmagf) TILE(P, fminmagl)         \
    TILE(P, fmod) TILE(P, fmodf) TILE(P, fmodl) TILE(P, fmul) TILE(P, fmull) TILE(P, fopen)        \
    TILE(P, fopencookie) TILE(P, fork) TILE(P, fpathconf) TILE(P, fprintf) TILE(P, fputc)          \
    TILE(P, fputs) TILE(P, fread) TILE(P, free) TILE(P, freopen) TILE(P, frexp) TILE(P, frexpf)    \
    TILE(P, frexpl) TILE(P, fromfp) TILE(P, fromfpf) TILE(P, fromfpl) TILE(P, fromfpx)             \
    TILE(P, fromfpxf) TILE(P, fromfpxl) TILE(P, fscanf) TILE(P, fseek) TILE(P, fseeko)             \
    TILE(P, fsetpos) TILE(P, fsqrt) TILE(P, fsqrtl) TILE(P, fsub) TILE(P, fsubl) TILE(P, fsync)    \
    TILE(P, ftell) TILE(P, ftello) TILE(P, ftruncate) TILE(P, ftrylockfile) TILE(P, funlockfile)   \
    TILE(P, fwrite) TILE(P, gamma) TILE(P, gammaf) TILE(P, gammal) TILE(P, gcvt)                   \
    TILE(P, get_current_dir_name) TILE(P, getc) TILE(P, getchar) TILE(P, getcwd) TILE(P, getdate)  \
    TILE(P, getdelim) TILE(P, getdomainname) TILE(P, getdtablesize) TILE(P, getegid)               \
    TILE(P, getentropy) TILE(P, getenv) TILE(P, geteuid) TILE(P, getgid) TILE(P, getgroups)        \
    TILE(P, gethostid) TILE(P, gethostname) TILE(P, getline) TILE(P, getloadavg)                   \
    TILE(P, getlogin) TILE(P, getopt) TILE(P, getpagesize) TILE(P, getpass) TILE(P, getpayload)    \
    TILE(P, getpayloadf) TILE(P, getpayloadl) TILE(P, getpgid) TILE(P, getpgrp) TILE(P, getpid)    \
    TILE(P, getppid) TILE(P, getpt) TILE(P, getresgid) TILE(P, getresuid) TILE(P, getsid)          \
    TILE(P, getsubopt) TILE(P, gettid) TILE(P, getuid) TILE(P, getusershell) TILE(P, getw)         \
    TILE(P, getwd) TILE(P, gmtime) TILE(P, grantpt) TILE(P, gridDim) TILE(P, group_member)         \
    TILE(P, hash_combine) TILE(P, hipFree) TILE(P, hipMalloc) TILE(P, hypot) TILE(P, hypotf)       \
    TILE(P, hypotl) TILE(P, ilogb) TILE(P, ilogbf) TILE(P, ilogbl) TILE(P, index)                  \
    TILE(P, initstate) TILE(P, int32_t) TILE(P, isatty) TILE(P, isinf) TILE(P, isinff)             \
    TILE(P, isinfl) TILE(P, isnan) TILE(P, isnanf) TILE(P, isnanl) TILE(P, j0) TILE(P, j0f)        \
    TILE(P, j0l) TILE(P, j1) TILE(P, j1f) TILE(P, j1l) TILE(P, jn) TILE(P, jnf) TILE(P, jnl)       \
    TILE(P, jrand48) TILE(P, kill) TILE(P, l64a) TILE(P, labs) TILE(P, lchown) TILE(P, lcong48)    \
    TILE(P, ldexp) TILE(P, ldexpf) TILE(P, ldexpl) TILE(P, ldiv) TILE(P, ldiv_t) TILE(P, lgamma)   \
    TILE(P, lgammaf) TILE(P, lgammal) TILE(P, link) TILE(P, linkat) TILE(P, llabs) TILE(P, lldiv)  \
    TILE(P, llmax) TILE(P, llmin) TILE(P, llogb) TILE(P, llogbf) TILE(P, llogbl) TILE(P, llrint)   \
    TILE(P, llrintf) TILE(P, llrintl) TILE(P, llround) TILE(P, llroundf) TILE(P, llroundl)         \
    TILE(P, localtime) TILE(P, lockf) TILE(P, log) TILE(P, log10) TILE(P, log10f) TILE(P, log10l)  \
    TILE(P, log1p) TILE(P, log1pf) TILE(P, log1pl) TILE(P, log2) TILE(P, log2f) TILE(P, log2l)     \
    TILE(P, logb) TILE(P, logbf) TILE(P, logbl) TILE(P, logf) TILE(P, logl) TILE(P, longjmp)       \
    TILE(P, lrand48) TILE(P, lrint) TILE(P, lrintf) TILE(P, lrintl) TILE(P, lround)                \
    TILE(P, lroundf) TILE(P, lroundl) TILE(P, lseek) TILE(P, make_float4) TILE(P, malloc)          \
    TILE(P, max) TILE(P, mblen) TILE(P, mbstowcs) TILE(P, mbtowc) TILE(P, memccpy)                 \
    TILE(P, memchr) TILE(P, memcmp) TILE(P, memcpy) TILE(P, memfrob) TILE(P, memmem)               \
    TILE(P, memmove) TILE(P, mempcpy) TILE(P, memrchr) TILE(P, memset) TILE(P, min)                \
    TILE(P, mkdtemp) TILE(P, mkostemp) TILE(P, mkostemps) TILE(P, mkstemp) TILE(P, mkstemps)       \
    TILE(P, mktemp) TILE(P, mktime) TILE(P, mmap) TILE(P, modf) TILE(P, modff) TILE(P, modfl)      \
    TILE(P, move) TILE(P, mrand48) TILE(P, munmap) TILE(P, nan) TILE(P, nanf) TILE(P, nanl)        \
    TILE(P, nanosleep) TILE(P, nearbyint) TILE(P, nearbyintf) TILE(P, nearbyintl)                  \
    TILE(P, nextafter) TILE(P, nextafterf) TILE(P, nextafterl) TILE(P, nextdown)                   \
    TILE(P, nextdownf) TILE(P, nextdownl) TILE(P, nexttoward) TILE(P, nexttowardf)                 \
    TILE(P, nexttowardl) TILE(P, nextup) TILE(P, nextupf) TILE(P, nextupl) TILE(P, nice)           \
    TILE(P, none) TILE(P, norm3d) TILE(P, norm3df) TILE(P, norm4d) TILE(P, norm4df)                \
    TILE(P, normcdf) TILE(P, normcdff) TILE(P, normcdfinv) TILE(P, normcdfinvf) TILE(P, normf)     \
    TILE(P, nrand48) TILE(P, obstack_printf) TILE(P, obstack_vprintf) TILE(P, of)                  \
    TILE(P, on_exit) TILE(P, open_memstream) TILE(P, optarg) TILE(P, opterr) TILE(P, optind)       \
    TILE(P, optopt) TILE(P, parameters) TILE(P, pathconf) TILE(P, pause) TILE(P, pclose)           \
    TILE(P, perror) TILE(P, pipe) TILE(P, pipe2) TILE(P, plan) TILE(P, popen)                      \
    TILE(P, posix_memalign) TILE(P, posix_openpt) TILE(P, pow) TILE(P, powf) TILE(P, powl)         \
    TILE(P, pread) TILE(P, prefetch) TILE(P, printf) TILE(P, producer) TILE(P, profil)             \
    TILE(P, pselect) TILE(P, pthread_create) TILE(P, pthread_join) TILE(P, ptrdiff_t)              \
    TILE(P, ptsname) TILE(P, putc) TILE(P, putchar) TILE(P, putenv) TILE(P, puts) TILE(P, putw)    \
    TILE(P, pwrite) TILE(P, qecvt) TILE(P, qfcvt) TILE(P, qgcvt) TILE(P, qsort)                    \
    TILE(P, quick_exit) TILE(P, raise) TILE(P, rand) TILE(P, random) TILE(P, rawmemchr)            \
    TILE(P, rcbrt) TILE(P, rcbrtf) TILE(P, read) TILE(P, readlink) TILE(P, readlinkat)             \
    TILE(P, realloc) TILE(P, reallocarray) TILE(P, realpath) TILE(P, remainder)                    \
    TILE(P, remainderf) TILE(P, remainderl) TILE(P, remove) TILE(P, remquo) TILE(P, remquof)       \
    TILE(P, remquol) TILE(P, rename) TILE(P, renameat) TILE(P, renameat2) TILE(P, revoke)          \
    TILE(P, rewind) TILE(P, rhypot) TILE(P, rhypotf) TILE(P, rindex) TILE(P, rint) TILE(P, rintf)  \
    TILE(P, rintl) TILE(P, rmdir) TILE(P, rnorm) TILE(P, rnorm3d) TILE(P, rnorm3df)                \
    TILE(P, rnorm4d) TILE(P, rnorm4df) TILE(P, rnormf) TILE(P, round) TILE(P, roundeven)           \
    TILE(P, roundevenf) TILE(P, roundevenl) TILE(P, roundf) TILE(P, roundl) TILE(P, rpmatch)       \
    TILE(P, rsqrt) TILE(P, rsqrtf) TILE(P, run) TILE(P, sbrk) TILE(P, scalb) TILE(P, scalbf)       \
    TILE(P, scalbl) TILE(P, scalbln) TILE(P, scalblnf) TILE(P, scalblnl) TILE(P, scalbn)           \
    TILE(P, scalbnf) TILE(P, scalbnl) TILE(P, scanf) TILE(P, sched_yield) TILE(P, secure_getenv)   \
    TILE(P, seed48) TILE(P, select) TILE(P, session) TILE(P, setbuf) TILE(P, setbuffer)            \
    TILE(P, setdomainname) TILE(P, setegid) TILE(P, setenv) TILE(P, seteuid) TILE(P, setgid)       \
    TILE(P, sethostid) TILE(P, sethostname) TILE(P, setjmp) TILE(P, setlinebuf) TILE(P, setlogin)  \
    TILE(P, setpayload) TILE(P, setpayloadf) TILE(P, setpayloadl) TILE(P, setpayloadsig)           \
    TILE(P, setpayloadsigf) TILE(P, setpayloadsigl) TILE(P, setpgid) TILE(P, setpgrp)              \
    TILE(P, setregid) TILE(P, setresgid) TILE(P, setresuid) TILE(P, setreuid) TILE(P, setsid)      \
    TILE(P, setstate) TILE(P, setuid) TILE(P, setusershell) TILE(P, setvbuf)                       \
    TILE(P, sigabbrev_np) TILE(P, sigdescr_np) TILE(P, signal) TILE(P, signbit) TILE(P, signgam)   \
    TILE(P, significand) TILE(P, significandf) TILE(P, significandl) TILE(P, sin) TILE(P, sincos)  \
    TILE(P, sincosf) TILE(P, sincosl) TILE(P, sincospi) TILE(P, sincospif) TILE(P, sinf)           \
    TILE(P, sinh) TILE(P, sinhf) TILE(P, sinhl) TILE(P, sinl) TILE(P, sinpi) TILE(P, sinpif)       \
    TILE(P, size) TILE(P, size_t) TILE(P, sleep) TILE(P, snprintf) TILE(P, sprintf) TILE(P, sqrt)  \
    TILE(P, sqrtf) TILE(P, sqrtl) TILE(P, srand) TILE(P, srand48) TILE(P, srandom)                 \
    TILE(P, sscanf) TILE(P, state) TILE(P, stpcpy) TILE(P, stpncpy) TILE(P, strcasecmp)            \
    TILE(P, strcasecmp_l) TILE(P, strcasestr) TILE(P, strcat) TILE(P, strchr) TILE(P, strchrnul)   \
    TILE(P, strcmp) TILE(P, strcoll) TILE(P, strcoll_l) TILE(P, strcpy) TILE(P, strcspn)           \
    TILE(P, strdup) TILE(P, stream) TILE(P, strerror) TILE(P, strerror_l)                          \
    TILE(P, strerrordesc_np) TILE(P, strerrorname_np) TILE(P, strfromd) TILE(P, strfromf)          \
    TILE(P, strfroml) TILE(P, strfry) TILE(P, strftime) TILE(P, strftime_l) TILE(P, strlen)        \
    TILE(P, strncasecmp) TILE(P, strncasecmp_l) TILE(P, strncat) TILE(P, strncmp)                  \
    TILE(P, strncpy) TILE(P, strndup) TILE(P, strnlen) TILE(P, strpbrk) TILE(P, strptime)          \
    TILE(P, strptime_l) TILE(P, strrchr) TILE(P, strsep) TILE(P, strsignal) TILE(P, strspn)        \
    TILE(P, strstr) TILE(P, strtod) TILE(P, strtod_l) TILE(P, strtof) TILE(P, strtof128_l)         \
    TILE(P, strtof32_l) TILE(P, strtof32x_l) TILE(P, strtof64_l) TILE(P, strtof64x_l)              \
    TILE(P, strtof_l) TILE(P, strtok) TILE(P, strtol) TILE(P, strtol_l) TILE(P, strtold)           \
    TILE(P, strtold_l) TILE(P, strtoll) TILE(P, strtoll_l) TILE(P, strtoq) TILE(P, strtoul)        \
    TILE(P, strtoul_l) TILE(P, strtoull) TILE(P, strtoull_l) TILE(P, strtouq) TILE(P, strverscmp)  \
    TILE(P, strxfrm) TILE(P, strxfrm_l) TILE(P, swab) TILE(P, swap) TILE(P, symlink)               \
    TILE(P, symlinkat) TILE(P, sync) TILE(P, syncfs) TILE(P, syscall) TILE(P, sysconf)             \
    TILE(P, system) TILE(P, tan) TILE(P, tanf) TILE(P, tanh) TILE(P, tanhf) TILE(P, tanhl)         \
    TILE(P, tanl) TILE(P, tcgetpgrp) TILE(P, tcsetpgrp) TILE(P, tempnam) TILE(P, tex1D)            \
    TILE(P, tgamma) TILE(P, tgammaf) TILE(P, tgammal) TILE(P, thread) TILE(P, threadIdx)           \
    TILE(P, tile_count) TILE(P, time) TILE(P, time_t) TILE(P, timegm) TILE(P, timelocal)           \
    TILE(P, timer_create) TILE(P, timer_delete) TILE(P, timer_getoverrun) TILE(P, timer_gettime)   \
    TILE(P, timer_settime) TILE(P, timespec) TILE(P, timespec_get) TILE(P, timespec_getres)        \
    TILE(P, timezone) TILE(P, tm) TILE(P, tmpfile) TILE(P, tmpnam) TILE(P, totalorder)             \
    TILE(P, totalorderf) TILE(P, totalorderl) TILE(P, totalordermag) TILE(P, totalordermagf)       \
    TILE(P, totalordermagl) TILE(P, trunc) TILE(P, truncate) TILE(P, truncf) TILE(P, truncl)       \
    TILE(P, ttyname) TILE(P, ttyslot) TILE(P, tzname) TILE(P, tzset) TILE(P, ualarm)               \
    TILE(P, ufromfp) TILE(P, ufromfpf) TILE(P, ufromfpl) TILE(P, ufromfpx) TILE(P, ufromfpxf)      \
    TILE(P, ufromfpxl) TILE(P, uint2) TILE(P, uint32_t) TILE(P, ullmax) TILE(P, ullmin)            \
    TILE(P, umax) TILE(P, umin) TILE(P, ungetc) TILE(P, unlink) TILE(P, unlinkat)                  \
    TILE(P, unlockpt) TILE(P, unsetenv) TILE(P, usleep) TILE(P, va_list) TILE(P, valloc)           \
    TILE(P, vasprintf) TILE(P, vdprintf) TILE(P, vfork) TILE(P, vfprintf) TILE(P, vfscanf)         \
    TILE(P, vhangup) TILE(P, vprintf) TILE(P, vscanf) TILE(P, vsnprintf) TILE(P, vsprintf)         \
    TILE(P, vsscanf) TILE(P, wait) TILE(P, wall_clock64) TILE(P, warpSize) TILE(P, wchar_t)        \
    TILE(P, wcstombs) TILE(P, wctomb) TILE(P, worker) TILE(P, write) TILE(P, y0) TILE(P, y0f)      \
    TILE(P, y0l) TILE(P, y1) TILE(P, y1f) TILE(P, y1l) TILE(P, yn) TILE(P, ynf) TILE(P, ynl)
/* clang-format on */

#endif
