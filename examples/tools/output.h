/* output.h: what a program writes, to a stream or to a file, with the reason if that fails.

       output o;
       if ((why = output_open(&o, "step.svg")) != 0) fprintf(stderr, "step.svg: %s\n", strerror(why));
       output_put(&o, text, size);
       output_format(&o, "%d\n", n);
       if ((why = output_close(&o, 1)) != 0) fprintf(stderr, "step.svg: %s\n", strerror(why));

       output_begin();
       output out = output_to(stdout);
       output_put(&out, text, size);
       if ((why = output_flush(&out)) != 0) ...

   A write that fails is remembered with its errno, which the next call that succeeds would lose: output_flush and
   output_close return it. A file has another name beside its own until output_publish or output_close, so that what was
   there stays as it is if the program fails or is ended. Several threads may write to one output. Needs POSIX. */
#ifndef OUTPUT_H
#define OUTPUT_H

#if !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* strdup, fdopen, readlink */
#endif
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct output {
    FILE *file; /* null: what is written is dropped */
    int error;  /* errno of the first write that failed; 0: none has */
    char *name,
        *part; /* of a file: its name, and the one that it has until it is published; or null */
} output;

static inline output output_to(FILE *stream)
{
    output o;
    memset(&o, 0, sizeof o);
    o.file = stream;
    return o;
}

/* Occupies standard streams that are closed, so that no file that is opened gets their place: writing to them fails. */
static inline void output_begin(void)
{
    for (int stream = 0; stream < 3; stream++)
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", stream ? O_RDONLY : O_WRONLY) < 0)
            return;
}

/* For each call that fails. */
static inline void output_failed(output *o)
{
    const int why = errno ? errno : EIO;
    int none = 0;
    __atomic_compare_exchange_n(&o->error, &none, why, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static inline void output_put(output *o, const char *text, size_t size)
{
    if (o && o->file && size && fwrite(text, 1, size, o->file) != size) output_failed(o);
}
static inline __attribute__((format(printf, 2, 3))) void output_format(output *o,
                                                                       const char *format, ...)
{
    va_list list;
    if (!o || !o->file) return;
    va_start(list, format);
    if (vfprintf(o->file, format, list) < 0) output_failed(o);
    va_end(list);
}

/* Returns 0, or why a write has failed. */
static inline int output_flush(output *o)
{
    if (o->file && fflush(o->file)) output_failed(o);
    if (o->file && !o->error && ferror(o->file)) o->error = EIO; /* not written by this header */
    return o->error;
}

/* The file that a name leads to, by symbolic links; null: errno says why not. The caller frees it. */
static inline char *output_target(const char *path)
{
    char to[4096], *at = strdup(path);
    for (uint32_t links = 0; at && links < 40; links++) {
        const ssize_t size = readlink(at, to, sizeof to);
        const char *slash = strrchr(at, '/');
        const size_t folder = slash && size > 0 && to[0] != '/' ? (size_t)(slash - at) + 1 : 0;
        char *next;
        if (size < 0) return at;
        next = (char *)malloc(folder + (size_t)size + 1);
        if (next) {
            memcpy(next, at, folder);
            memcpy(next + folder, to, (size_t)size);
            next[folder + (size_t)size] = 0;
        }
        free(at);
        at = next;
    }
    errno = at ? ELOOP : ENOMEM;
    free(at);
    return NULL;
}

/* Opens a file for writing. What is no file, such as a terminal, is written to at once. 0, or errno. */
static inline int output_open(output *o, const char *path)
{
    struct stat was;
    const int is_there = !stat(path, &was);
    int file;
    *o = output_to(NULL);
    if (is_there && !S_ISREG(was.st_mode)) return (o->file = fopen(path, "w")) ? 0 : errno;
    if (is_there && access(path, W_OK)) return errno;
    o->name = output_target(path);
    if (!o->name || !(o->part = (char *)malloc(strlen(o->name) + 32))) {
        free(o->name);
        return errno;
    }
    sprintf(o->part, "%s.%ld.part", o->name, (long)getpid());
    file = open(o->part, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (file >= 0 && is_there && fchmod(file, was.st_mode & 0777)) errno = 0; /* as umask has it */
    if (file >= 0 && (o->file = fdopen(file, "w")) != NULL) return 0;
    o->error = errno;
    if (file >= 0) unlink(o->part), close(file);
    free(o->name), free(o->part);
    o->name = o->part = NULL;
    return o->error;
}

/* Gives a file that has been written so far its name; it may be written further. 0, or errno. */
static inline int output_publish(output *o)
{
    if (output_flush(o) || !o->part) return o->error;
    if (rename(o->part, o->name))
        output_failed(o);
    else
        free(o->part), o->part = NULL;
    return o->error;
}

/* Ends a file, and with keep 0 removes it, if it is not published. 0, or errno. */
static inline int output_close(output *o, int keep)
{
    if (!o->file) return 0;
    if (keep) output_publish(o);
    if (fclose(o->file)) output_failed(o);
    if (o->part) unlink(o->part);
    free(o->name), free(o->part);
    o->file = NULL, o->name = o->part = NULL;
    return o->error;
}

/* Whether a file could be opened now, which changes nothing. 0, or errno. */
static inline int output_refused(const char *path)
{
    struct stat is;
    output o;
    int why;
    if (!stat(path, &is) && !S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode))
        return access(path, W_OK) ? errno : 0; /* opening a pipe waits for its reader */
    why = output_open(&o, path);
    output_close(&o, 0);
    return why;
}

#endif /* OUTPUT_H */
