/* Drives a command through a pseudo-terminal: what a person at a terminal would do, from a script on standard input.
 *
 * Lines of the script: `send TEXT`, `expect TEXT` (waits for it in what came since the last expectation),
 * `pause MILLISECONDS`. In TEXT, \r \t \\ and \xHH are bytes. After the last line the command must end by itself.
 * Everything the command showed goes to standard output, then one line: `pty: exit N`, or what was waited for in
 * vain. Nothing waits longer than WAIT_SECONDS, and the command never outlives this program. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_SECONDS = 30, MOST_BYTES = 1 << 20 };

static char seen[MOST_BYTES];
static size_t n_seen, at;
static int master;
static pid_t child;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Reads what the other end wrote. Returns 1: something came; 0: nothing within the time; -1: the other end is closed,
 * or no more bytes can be kept. */
static int take(double seconds)
{
    struct pollfd p = {.fd = master, .events = POLLIN};
    if (poll(&p, 1, seconds > 0 ? (int)(seconds * 1e3) + 1 : 0) <= 0) return 0;
    if (n_seen == MOST_BYTES) return -1;
    ssize_t n = read(master, seen + n_seen, MOST_BYTES - n_seen);
    if (n <= 0) return -1;
    n_seen += (size_t)n;
    return 1;
}

static size_t unescape(char *text)
{
    char *out = text;
    for (const char *in = text; *in != '\0'; in++) {
        if (*in != '\\') {
            *out++ = *in;
            continue;
        }
        in++;
        if (*in == 'x') {
            char hex[3] = {in[1], in[2], '\0'};
            *out++ = (char)strtol(hex, NULL, 16);
            in += 2;
        } else {
            *out++ = *in == 'r' ? '\r' : *in == 't' ? '\t' : *in;
        }
    }
    *out = '\0';
    return (size_t)(out - text);
}

static void finish(const char *what, const char *detail, int code)
{
    fwrite(seen, 1, n_seen, stdout);
    printf("\npty: %s%s\n", what, detail);
    kill(child, SIGKILL);
    exit(code);
}

static void expect(const char *text, size_t n)
{
    double end = now() + WAIT_SECONDS;
    for (;;) {
        char *found = memmem(seen + at, n_seen - at, text, n);
        if (found != NULL) {
            at = (size_t)(found - seen) + n;
            return;
        }
        if (now() > end) finish("waited in vain for ", text, 1);
        if (take(end - now()) < 0) finish("it ended before ", text, 1);
    }
}

static void pause_for(double seconds)
{
    double end = now() + seconds;
    while (now() < end && take(end - now()) >= 0) continue;
}

static void start(char **argv)
{
    struct winsize size = {.ws_row = 40, .ws_col = 160};
    master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) exit(2);
    ioctl(master, TIOCSWINSZ, &size);
    child = fork();
    if (child != 0) return;
    setsid();
    int slave = open(ptsname(master), O_RDWR);
    if (slave < 0) _exit(126);
    ioctl(slave, TIOCSCTTY, 0);
    for (int fd = 0; fd < 3; fd++) dup2(slave, fd);
    close(slave);
    close(master);
    execvp(argv[0], argv);
    _exit(127);
}

static int wait_for_end(void)
{
    double end = now() + WAIT_SECONDS;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        if (now() > end) finish("it did not end", "", 1);
        if (take(0.05) < 0) usleep(10000);
    }
    while (take(0) > 0) continue;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int main(int argc, char **argv)
{
    char line[4096], code[16];
    if (argc < 2) return 2;
    start(argv + 1);
    while (fgets(line, sizeof line, stdin) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *text = strchr(line, ' ');
        if (text == NULL) continue;
        *text++ = '\0';
        size_t n = unescape(text);
        if (strcmp(line, "send") == 0 && write(master, text, n) < 0) finish("could not send ", text, 1);
        if (strcmp(line, "expect") == 0) expect(text, n);
        if (strcmp(line, "pause") == 0) pause_for(atof(text) / 1e3);
    }
    snprintf(code, sizeof code, "%d", wait_for_end());
    finish("exit ", code, 0);
}
