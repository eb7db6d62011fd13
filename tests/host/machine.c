/* What the process may use of its machine: affinity, quotas and limits of cgroups, of both versions and of their
   ancestors, as folders of this test describe them, and of the machine itself where it lets the test make cgroups. */
// run: asan whole
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define FLEET_IMPLEMENTATION
#include "fleet_device.h"
#include "test.h"

#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MB ((uint64_t)1 << 20)

/* ---- folders that describe a machine ---- */

typedef struct folder {
    char root[64];
} folder;

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *at)
{
    (void)info, (void)kind, (void)at;
    return remove(path);
}
static void folder_begin(folder *f)
{
    snprintf(f->root, sizeof f->root, "/tmp/fleet_machine_XXXXXX");
    if (!mkdtemp(f->root)) abort();
}
static void folder_end(folder *f)
{
    nftw(f->root, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
/* Writes a file below the root, and makes its folders. */
static void put(const folder *f, const char *name, const char *text)
{
    char path[512];
    FILE *file;
    snprintf(path, sizeof path, "%s/%s", f->root, name);
    for (char *at = path + strlen(f->root) + 1; (at = strchr(at, '/')) != NULL; at++) {
        *at = 0;
        mkdir(path, 0700);
        *at = '/';
    }
    file = fopen(path, "w");
    if (!file || fputs(text, file) < 0 || fclose(file)) abort();
}

typedef struct entry {
    const char *name, *text;
} entry;
typedef struct machine_case {
    const char *what;
    entry files[10];
    uint64_t milli_quota; /* processors of the quota, times 1000; 0: none */
    uint64_t memory;
} machine_case;

#define MEMINFO                                                                                    \
    {                                                                                              \
        "proc/meminfo", "MemTotal: 16384 kB\nMemAvailable:    8192 kB\n"                           \
    }
static const machine_case cases[] = {
    {"nothing", {{"proc/self/none", ""}}, 0, UINT64_MAX},
    {"no cgroups", {MEMINFO}, 0, 8 * MB},
    {"v2, own group",
     {MEMINFO,
      {"proc/self/cgroup", "0::/a/b\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "200000 100000\n"},
      {"sys/fs/cgroup/a/b/memory.max", "4194304\n"},
      {"sys/fs/cgroup/a/b/memory.current", "1048576\n"}},
     2000,
     3 * MB},
    {"v2, ancestors are narrower",
     {MEMINFO,
      {"proc/self/cgroup", "0::/a/b/c\n"},
      {"sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n"},
      {"sys/fs/cgroup/a/b/c/memory.max", "max\n"},
      {"sys/fs/cgroup/a/b/cpu.max", "300000 100000\n"},
      {"sys/fs/cgroup/a/cpu.max", "50000 50000\n"},
      {"sys/fs/cgroup/a/memory.max", "2097152\n"}},
     1000,
     2 * MB},
    {"v2, what the group has cached is free",
     {MEMINFO,
      {"proc/self/cgroup", "0::/a\n"},
      {"sys/fs/cgroup/a/memory.max", "4194304\n"},
      {"sys/fs/cgroup/a/memory.current", "4194304\n"},
      {"sys/fs/cgroup/a/memory.stat",
       "anon 1048576\nfile 3145728\nworkingset_x 5\ninactive_file 1048576\nactive_file 1048576\n"}},
     0,
     2 * MB},
    {"v2, the group is full",
     {MEMINFO,
      {"proc/self/cgroup", "0::/a\n"},
      {"sys/fs/cgroup/a/memory.max", "1048576\n"},
      {"sys/fs/cgroup/a/memory.current", "2097152\n"}},
     0,
     0},
    {"v2 in a container: the root is the group",
     {MEMINFO,
      {"proc/self/cgroup", "0::/\n"},
      {"sys/fs/cgroup/cpu.max", "150000 100000\n"},
      {"sys/fs/cgroup/memory.max", "6291456\n"}},
     1500,
     6 * MB},
    {"v2, less than a processor",
     {{"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/cpu.max", "1000 100000\n"}},
     10,
     UINT64_MAX},
    {"v2, more memory than there is",
     {MEMINFO, {"proc/self/cgroup", "0::/a\n"}, {"sys/fs/cgroup/a/memory.max", "1073741824\n"}},
     0,
     8 * MB},
    {"v1",
     {MEMINFO,
      {"proc/self/cgroup", "4:memory:/d/e\n2:cpu,cpuacct:/d\n1:name=systemd:/x\n"},
      {"sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_quota_us", "100000\n"},
      {"sys/fs/cgroup/cpu,cpuacct/d/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/d/e/memory.limit_in_bytes", "9223372036854771712\n"},
      {"sys/fs/cgroup/memory/d/memory.limit_in_bytes", "5242880\n"},
      {"sys/fs/cgroup/memory/d/memory.usage_in_bytes", "4194304\n"},
      {"sys/fs/cgroup/memory/d/memory.stat",
       "inactive_file 1\nactive_file 1\ntotal_inactive_file 1048576\ntotal_active_file 0\n"}},
     1000,
     2 * MB},
    {"v1, without a quota, under another name",
     {MEMINFO,
      {"proc/self/cgroup", "2:cpuacct,cpu:/d\n4:memory:/\n"},
      {"sys/fs/cgroup/cpu/d/cpu.cfs_quota_us", "-1\n"},
      {"sys/fs/cgroup/cpu/d/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "150000\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"}},
     1500,
     8 * MB},
    {"v1 in a container: the path is another one's",
     {MEMINFO,
      {"proc/self/cgroup", "4:memory:/docker/0123\n2:cpu:/docker/0123\n0::/docker/0123\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n"},
      {"sys/fs/cgroup/memory/memory.limit_in_bytes", "3145728\n"}},
     1000,
     3 * MB},
    {"v2 beside v1",
     {MEMINFO,
      {"proc/self/cgroup", "1:name=systemd:/x\n0::/a\n"},
      {"sys/fs/cgroup/unified/a/cpu.max", "100000 100000\n"},
      {"sys/fs/cgroup/unified/a/memory.max", "1048576\n"}},
     1000,
     1 * MB},
    {"files that hold anything else",
     {MEMINFO,
      {"proc/self/cgroup", "\n:\n::\n0::\nx:cpu\n3:cpu,,:/a\n0::/../b\n"},
      {"sys/fs/cgroup/cpu.max", "100000 0\n"},
      {"sys/fs/cgroup/memory.max", "many\n"},
      {"sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "\n"},
      {"sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n"}},
     0,
     8 * MB},
};

static void cgroups_of_both_versions_and_their_ancestors(test_run *t)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases && !t->failed_here; i++) {
        const machine_case *c = &cases[i];
        const uint32_t processors = fleet_host_machine().processors;
        const uint64_t whole = c->milli_quota < 1000 ? 1 : c->milli_quota / 1000;
        fleet_machine m;
        folder f;
        folder_begin(&f);
        for (uint32_t k = 0; k < 10 && c->files[k].name; k++)
            put(&f, c->files[k].name, c->files[k].text);
        m = fleeti_machine_under(f.root);
        folder_end(&f);
        if (m.processors != processors || m.memory_bytes != c->memory ||
            m.workers != (c->milli_quota && whole < processors ? whole : processors))
            test_fail(t, __FILE__, __LINE__, "%s: %u processors, %u workers, %llu bytes", c->what,
                      m.processors, m.workers, (unsigned long long)m.memory_bytes);
    }
}

/* ---- this machine ---- */

/* The machine as a child sees it that has changed its own limits. */
static fleet_machine seen_after(void (*change)(void *user), void *user)
{
    fleet_machine m;
    int ends[2], status = 0;
    pid_t child;
    memset(&m, 0, sizeof m);
    if (pipe(ends)) abort();
    fflush(stdout);
    child = fork();
    if (child == 0) {
        change(user);
        m = fleet_host_machine();
        _exit(write(ends[1], &m, sizeof m) != (ssize_t)sizeof m);
    }
    close(ends[1]);
    if (read(ends[0], &m, sizeof m) != (ssize_t)sizeof m) memset(&m, 0, sizeof m);
    close(ends[0]);
    waitpid(child, &status, 0);
    return m;
}

static void one_processor(void *user)
{
    cpu_set_t set, one;
    (void)user;
    sched_getaffinity(0, sizeof set, &set);
    CPU_ZERO(&one);
    for (size_t i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
        if (CPU_ISSET(i, &set)) CPU_SET(i, &one);
    sched_setaffinity(0, sizeof one, &one);
}

static void affinity_is_kept(test_run *t)
{
    const fleet_machine here = fleet_host_machine(), m = seen_after(one_processor, NULL);
    cpu_set_t set;
    CHECK(!sched_getaffinity(0, sizeof set, &set));
    CHECK_INT(here.processors, CPU_COUNT(&set));
    CHECK(here.workers >= 1 && here.workers <= here.processors);
    CHECK(here.memory_bytes > 0);
    CHECK_INT(m.processors, 1);
    CHECK_INT(m.workers, 1);
}

static void limit_space(void *user)
{
    struct rlimit limit;
    getrlimit(RLIMIT_AS, &limit);
    limit.rlim_cur = *(rlim_t *)user;
    setrlimit(RLIMIT_AS, &limit);
}
static void address_space_is_limited(test_run *t)
{
    uint64_t n[2];
    rlim_t limit;
    fleet_machine m;
    CHECK(fleeti_numbers_in("/proc", "self/status", "VmSize:", n));
    limit = n[0] * 1024 + 8 * MB;
    m = seen_after(limit_space, &limit);
    CHECK(m.memory_bytes >= 7 * MB && m.memory_bytes <= 9 * MB);
    limit = n[0] * 1024;
    m = seen_after(limit_space, &limit);
    CHECK(m.memory_bytes < 1 * MB);
}

/* A cgroup of the system, where the test may make one: as root, in a v1 hierarchy or in the root of v2. */
static int write_to(const char *folder, const char *name, const char *text)
{
    char path[512];
    FILE *file;
    int bad;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!(file = fopen(path, "r+"))) return 1; /* a cgroup has its files from the beginning */
    bad = fputs(text, file) < 0;
    return fclose(file) || bad;
}
static void join_group(void *group)
{
    if (write_to((const char *)group, "cgroup.procs", "0")) _exit(1);
}
static void groups_of_the_system_are_found(test_run *t)
{
    static const entry limits[] = {{"cpu/", "cpu.cfs_quota_us"}, {"", "cpu.max"}};
    for (uint32_t i = 0; i < 2 && !t->failed_here; i++) {
        char group[256];
        fleet_machine m;
        snprintf(group, sizeof group, "/sys/fs/cgroup/%sfleet_test_%d", limits[i].name,
                 (int)getpid());
        if (mkdir(group, 0700)) continue;
        if (!write_to(group, limits[i].text, i ? "100000 100000" : "100000")) {
            m = seen_after(join_group, group);
            if (m.processors != fleet_host_machine().processors || m.workers != 1)
                test_fail(t, __FILE__, __LINE__, "%s: %u processors, %u workers", group,
                          m.processors, m.workers);
        }
        rmdir(group);
    }
}

static void whole_machine(test_run *t)
{
    TEST(cgroups_of_both_versions_and_their_ancestors);
    TEST(affinity_is_kept);
    TEST(address_space_is_limited);
    TEST(groups_of_the_system_are_found);
}
TEST_MAIN(whole_machine)
