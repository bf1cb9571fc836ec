#include "io/process.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/clock.h"
#include "io/file.h"
#include "io/log.h"

static void close_unnamed(const int *keep, unsigned keep_count)
{
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    if (!dir)
        return;
    while ((entry = readdir(dir)) != NULL) {
        int fd = (int)strtol(entry->d_name, NULL, 10);
        bool wanted = fd <= STDERR_FILENO || fd == dirfd(dir) || entry->d_name[0] == '.';
        for (unsigned i = 0; i < keep_count; i++)
            wanted |= fd == keep[i];
        if (!wanted)
            close(fd);
    }
    closedir(dir);
}

void process_begin(const int *keep, unsigned keep_count)
{
    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    signal(SIGPIPE, SIG_IGN);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);

    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
    close_unnamed(keep, keep_count);

    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        struct rlimit more = {1 << 20, 1 << 20};
        if (limit.rlim_max < more.rlim_max && setrlimit(RLIMIT_NOFILE, &more) < 0) {
            limit.rlim_cur = limit.rlim_max;
            setrlimit(RLIMIT_NOFILE, &limit);
        }
    }
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    if (!getenv("FV_DUMPABLE")) /* a debugger needs it; nobody else may read our memory */
        prctl(PR_SET_DUMPABLE, 0);
    umask(077);
}

int process_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

int process_signal_read(int fd)
{
    struct signalfd_siginfo info;
    return read(fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

void process_reap(void)
{
    while (waitpid(-1, NULL, WNOHANG) > 0)
        ;
}

void process_daemonize(int *ready)
{
    int pipe_fd[2];
    *ready = -1;
    if (pipe2(pipe_fd, O_CLOEXEC) < 0)
        die("pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0)
        die("fork: %s", strerror(errno));
    if (child == 0) {
        close(pipe_fd[0]);
        setsid();
        *ready = pipe_fd[1];
        return;
    }
    close(pipe_fd[1]);
    char byte;
    ssize_t n;
    do
        n = read(pipe_fd[0], &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1)
        _exit(0);
    int status = 0;
    waitpid(child, &status, 0);
    _exit(WIFEXITED(status) && WEXITSTATUS(status) ? WEXITSTATUS(status) : 1);
}

void process_ready(int ready)
{
    if (ready < 0)
        return;
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (chdir("/") < 0)
        log_warning("cannot change to /: %s", strerror(errno));
    for (int fd = STDIN_FILENO; null >= 0 && fd <= STDERR_FILENO; fd++)
        dup2(null, fd);
    if (null > STDERR_FILENO)
        close(null);
    ssize_t n = write(ready, "", 1);
    (void)n;
    close(ready);
}

int process_priority(int nice)
{
    prctl(PR_SET_TIMERSLACK, 1000ul); /* ns; 50 us by default */
    return setpriority(PRIO_PROCESS, 0, nice) < 0 ? -errno : 0;
}

int process_confine(void)
{
    const uint32_t kept = 1u << CAP_NET_ADMIN | 1u << CAP_NET_RAW | 1u << CAP_NET_BIND_SERVICE;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct have[2];
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -errno;
    for (int cap = 0; cap <= 63; cap++)
        if (cap >= 32 || !(kept & 1u << cap))
            prctl(PR_CAPBSET_DROP, cap, 0, 0, 0); /* EINVAL beyond the last one, EPERM without CAP_SETPCAP */
    if (syscall(SYS_capget, &header, have) < 0)
        return -errno;
    struct __user_cap_data_struct want[2] = {{have[0].effective & kept, have[0].permitted & kept, 0}, {0, 0, 0}};
    header.version = _LINUX_CAPABILITY_VERSION_3;
    return syscall(SYS_capset, &header, want) < 0 ? -errno : 0;
}

void process_entropy(void *out, size_t n)
{
    uint8_t *at = out;
    while (n) {
        ssize_t got = getrandom(at, n, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            die("the kernel gives no random bytes: %s", strerror(errno));
        at += got;
        n -= (size_t)got;
    }
}

static uint64_t status_bytes(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

void process_usage(struct process_usage *usage)
{
    struct rusage used;
    char text[4096];
    memset(usage, 0, sizeof *usage);
    if (getrusage(RUSAGE_SELF, &used) == 0) {
        usage->user = (uint64_t)used.ru_utime.tv_sec * NS_PER_S + (uint64_t)used.ru_utime.tv_usec * NS_PER_US;
        usage->system = (uint64_t)used.ru_stime.tv_sec * NS_PER_S + (uint64_t)used.ru_stime.tv_usec * NS_PER_US;
    }
    if (file_read("/proc/self/status", text, sizeof text) > 0) {
        usage->resident = status_bytes(text, "\nVmRSS:");
        usage->resident_peak = status_bytes(text, "\nVmHWM:");
        usage->anonymous = status_bytes(text, "\nRssAnon:");
    }
}
