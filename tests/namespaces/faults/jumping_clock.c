/* A wall clock that jumps by two days, back and forth, every second. Preloaded into the sidecar alone (ld.so(8), LD_PRELOAD);
   every other clock is the kernel's. */
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (syscall(SYS_clock_gettime, clock, now) != 0)
        return -1;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) {
        struct timespec monotonic;
        if (syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &monotonic) != 0)
            return -1;
        now->tv_sec += monotonic.tv_sec % 2 ? 86400 : -86400;
    }
    return 0;
}
