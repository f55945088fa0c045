/* Makes one call of a process fail from the moment a file exists. Loaded by LD_PRELOAD.
 *
 *   FAILING_CALL      fdatasync, fsync, pwrite, or torn_pwrite: half of it is written first
 *   FAILING_TRIGGER   the file
 *
 * Each failure says "failed" on standard output, the pipe that also carries what was
 * acknowledged: so their order shows whether anything was acknowledged afterwards.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static int fails(const char *call) {
    const char *chosen = getenv("FAILING_CALL"), *trigger = getenv("FAILING_TRIGGER");
    if (!chosen || !trigger || strcmp(chosen, call) != 0 || access(trigger, F_OK) != 0) return 0;
    if (write(1, "failed\n", 7) != 7) _exit(1);
    errno = EIO;
    return 1;
}

int fdatasync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    return fails("fdatasync") ? -1 : real(fd);
}

int fsync(int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    return fails("fsync") ? -1 : real(fd);
}

static ssize_t write_or_fail(const char *name, int fd, const void *data, size_t size, off_t position) {
    ssize_t (*real)(int, const void *, size_t, off_t) =
        (ssize_t (*)(int, const void *, size_t, off_t))dlsym(RTLD_NEXT, name);
    if (fails("pwrite")) return -1;
    if (fails("torn_pwrite")) {
        if (size > 1) real(fd, data, size / 2, position);
        errno = EIO;
        return -1;
    }
    return real(fd, data, size, position);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t position) {
    return write_or_fail("pwrite", fd, data, size, position);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t position) {
    return write_or_fail("pwrite64", fd, data, size, position);
}
