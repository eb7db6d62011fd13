/* Folders of tests that write checkpoints. They need POSIX: _POSIX_C_SOURCE or _XOPEN_SOURCE, before
   the first header. */
#ifndef QWEN3_TEST_FOLDER_H
#define QWEN3_TEST_FOLDER_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct folder {
    char path[300];
} folder;

/* An empty one. */
static folder folder_make(void)
{
    const char *tmp = getenv("TMPDIR");
    folder f;
    snprintf(f.path, sizeof f.path, "%.250s/fleet-qwen3-XXXXXX", tmp ? tmp : "/tmp");
    if (!mkdtemp(f.path)) {
        printf("FAIL folder_make: cannot make %s\n", f.path);
        exit(1);
    }
    return f;
}

/* With its files; it has no folders. */
static void folder_remove(const folder *f)
{
    char path[700];
    DIR *dir = opendir(f->path);
    struct dirent *e;
    while (dir && (e = readdir(dir))) {
        snprintf(path, sizeof path, "%s/%s", f->path, e->d_name);
        remove(path);
    }
    if (dir) closedir(dir);
    rmdir(f->path);
}

#endif
