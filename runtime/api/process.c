/* The API of other processes: starts, waits for and kills them. A sweep runs each of its points in a process of its
 * own, in which its script is started again; fork is refused, because the threads of the kernels do not survive it.
 *
 * Invariant: a child reads nothing of the terminal and is not in its group, so that ^C reaches the parent alone,
 * which then kills the child; and it dies with its parent once it has called wn_exit_with_parent. No function waits
 * longer than it is told to. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "../base/interrupt.h"
#include "api.h"

extern char **environ;

static int32_t count_of(const char *const *list)
{
    int32_t n = 0;
    while (list[n] != NULL) n++;
    return n;
}

static int32_t is_set_in(const char *const *set, const char *entry)
{
    size_t length = strcspn(entry, "=");
    for (; *set != NULL; set++)
        if (strncmp(*set, entry, length + 1) == 0) return 1;
    return 0;
}

/* Returns the environment of this process, with the entries of `set` ("NAME=value") in place of those of the same
 * names; NULL: WN_OOM. The caller frees the list, not its texts. */
static const char **environment_with(const char *const *set)
{
    int32_t n = 0, all = count_of((const char *const *)environ), more = count_of(set);
    const char **out = wn__alloc((int64_t)sizeof(char *) * (all + more + 1));
    if (out == NULL) return NULL;
    for (int32_t i = 0; i < all; i++)
        if (!is_set_in(set, environ[i])) out[n++] = environ[i];
    memcpy(out + n, set, sizeof(char *) * (size_t)more);
    return out;
}

/* Fills what posix_spawn needs: input from nowhere, output appended to a file, a group of its own, SIGINT as usual. */
static int describe(posix_spawn_file_actions_t *files, posix_spawnattr_t *how, const char *output)
{
    sigset_t none, usual;
    int bad = 0;
    sigemptyset(&none);
    sigemptyset(&usual);
    sigaddset(&usual, SIGINT);
    bad |= posix_spawn_file_actions_addopen(files, 0, "/dev/null", O_RDONLY, 0);
    bad |= posix_spawn_file_actions_addopen(files, 1, output, O_WRONLY | O_CREAT | O_APPEND, 0600);
    bad |= posix_spawn_file_actions_adddup2(files, 1, 2);
    bad |= posix_spawnattr_setpgroup(how, 0);
    bad |= posix_spawnattr_setsigmask(how, &none);
    bad |= posix_spawnattr_setsigdefault(how, &usual);
    bad |= posix_spawnattr_setflags(how, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    return bad;
}

int32_t wn_spawn(const char *path, const char *const *argv, const char *const *set, const char *output)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t how;
    pid_t pid = -1;
    WN_TRY_ID(wn__need(path, "process: its program"));
    WN_TRY_ID(wn__need(argv, "process: its arguments"));
    WN_TRY_ID(wn__need(set, "process: its environment"));
    WN_TRY_ID(wn__need(output, "process: its output"));
    const char **env = environment_with(set);
    if (env == NULL) return -WN_OOM;
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&how);
    int bad = describe(&files, &how, output);
    if (bad == 0) bad = posix_spawn(&pid, path, &files, &how, (char *const *)argv, (char *const *)env);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    wn__free(env);
    if (bad != 0) return -wn__fail(WN_IO, "%s could not be started (%s)", path, strerror(bad));
    return (int32_t)pid;
}

/* Polls every 1 to 10 milliseconds, because no other sign of a child's end is there on every Linux. */
int32_t wn_wait(int32_t pid, double seconds, struct wn_ended *out)
{
    double until = wn_now() + seconds;
    WN_TRY(wn__need(out, "process"));
    if (pid < 1 || seconds != seconds)
        return wn__fail(WN_VALUE, "process: number %d and %g seconds to wait given; give what wn_spawn returned", pid,
                        seconds);
    int64_t pause = 1000000;
    for (;;) {
        int status;
        pid_t got = waitpid(pid, &status, WNOHANG);
        if (got < 0 && errno != EINTR) return wn__fail(WN_IO, "process %d: %s", pid, strerror(errno));
        if (got == pid) {
            *out = (struct wn_ended){1, WIFEXITED(status) ? WEXITSTATUS(status) : 0,
                                     WIFSIGNALED(status) ? WTERMSIG(status) : 0};
            return WN_OK;
        }
        *out = (struct wn_ended){0, 0, 0};
        if (wn__interrupted || wn_now() >= until) return WN_OK;
        nanosleep(&(struct timespec){.tv_nsec = pause}, NULL);
        if (pause < 10000000) pause *= 2;
    }
}

int32_t wn_kill(int32_t pid)
{
    siginfo_t info;
    int is_own = pid > 1 && waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
    if (is_own && (kill(-pid, SIGKILL) == 0 || kill(pid, SIGKILL) == 0)) return WN_OK;
    return wn__fail(WN_IO, "process %d cannot be ended: it is none that this one started", pid);
}

int32_t wn_exit_with_parent(int32_t parent)
{
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        return wn__fail(WN_IO, "this system cannot end a process with its parent");
    if (getppid() == parent) return WN_OK; /* asked afterwards, or a parent that ends in between would be missed */
    prctl(PR_SET_PDEATHSIG, 0);
    return wn__fail(WN_IO, "the process that started this one (%d) is gone", parent);
}

int32_t wn_process(void)
{
    return (int32_t)getpid();
}

const char *wn_signal_name(int32_t number)
{
    return sigabbrev_np(number);
}
