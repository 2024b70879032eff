#define _GNU_SOURCE
#include "hosts.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NETWORK 0x0a4d0000u
#define MTU 1500
#define QUEUED_PACKETS 20000

static void check(int is_right, const char *what) {
    if (is_right) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

uint32_t host_address(int host) { return htonl(NETWORK + 1 + (uint32_t)host); }

int host_of(uint32_t address) {
    uint32_t number = ntohl(address) - NETWORK;
    return number == 1 + STORE ? STORE : number == 1 + FUNCTION ? FUNCTION : CLIENT;
}

static void set_address(int fd, const char *device, uint32_t address) {
    struct ifreq request = {0};
    struct sockaddr_in *in = (struct sockaddr_in *)&request.ifr_addr;
    snprintf(request.ifr_name, IFNAMSIZ, "%s", device);
    in->sin_family = AF_INET;
    in->sin_addr.s_addr = address;
    check(!ioctl(fd, SIOCSIFADDR, &request), "address");
    in->sin_addr.s_addr = htonl(0xffffff00u);
    check(!ioctl(fd, SIOCSIFNETMASK, &request), "netmask");
}

static void set_up(int fd, const char *device) {
    struct ifreq request = {0};
    snprintf(request.ifr_name, IFNAMSIZ, "%s", device);
    check(!ioctl(fd, SIOCGIFFLAGS, &request), "flags");
    request.ifr_flags |= IFF_UP;
    check(!ioctl(fd, SIOCSIFFLAGS, &request), "up");
}

static int open_tun(const char *device) {
    struct ifreq request = {0};
    int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    check(tun >= 0, "/dev/net/tun");
    request.ifr_flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    snprintf(request.ifr_name, IFNAMSIZ, "%s", device);
    check(!ioctl(tun, TUNSETIFF, &request), "TUN device");
    // Packets come as TCP makes them, up to 64 KiB, and are counted as the segments that they stand for.
    check(!ioctl(tun, TUNSETOFFLOAD, TUN_F_CSUM | TUN_F_TSO4), "TUN offload");
    return tun;
}

static void apply(char *setting) {
    char path[256];
    const char *value = strchr(setting, '=');
    if (!value) return;
    snprintf(path, sizeof path, "/proc/sys/net/%.*s", (int)(value - setting), setting);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value + 1, strlen(value + 1)) < 0) fprintf(stderr, "not set: %s\n", setting);
    if (fd >= 0) close(fd);
}

int host_make(int host, char **settings, int n_settings) {
    check(!unshare(CLONE_NEWNET), "network namespace");
    int here = open("/proc/self/ns/net", O_RDONLY);
    check(here >= 0 && dup3(here, FIRST_NAMESPACE + host, O_CLOEXEC) >= 0, "namespace");
    close(here);
    int tun = open_tun("wire");
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq request = {0};
    snprintf(request.ifr_name, IFNAMSIZ, "wire");
    request.ifr_mtu = MTU;
    check(!ioctl(fd, SIOCSIFMTU, &request), "MTU");
    request.ifr_qlen = QUEUED_PACKETS;
    check(!ioctl(fd, SIOCSIFTXQLEN, &request), "queue");
    set_address(fd, "wire", host_address(host));
    if (host == CLIENT) {
        set_address(fd, "wire:1", htonl(NETWORK + 11));
        set_address(fd, "wire:2", htonl(NETWORK + 12));
    }
    set_up(fd, "wire");
    set_up(fd, "lo");
    close(fd);
    for (int i = 0; i < n_settings; i++) apply(settings[i]);
    return tun;
}

static int is_here(const char *process) {
    char path[300];
    struct stat theirs, ours;
    snprintf(path, sizeof path, "/proc/%s/ns/net", process);
    if (stat(path, &theirs)) return 0;
    for (int i = 0; i < HOSTS; i++)
        if (!fstat(FIRST_NAMESPACE + i, &ours) && ours.st_ino == theirs.st_ino && ours.st_dev == theirs.st_dev) return 1;
    return 0;
}

void hosts_clear(void) {
    DIR *all = opendir("/proc");
    if (!all) return;
    for (struct dirent *each; (each = readdir(all));) {
        int process = atoi(each->d_name);
        if (process > 1 && process != getpid() && is_here(each->d_name)) kill(process, SIGKILL);
    }
    closedir(all);
}

static int open_of(int supervisor, const char *what) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", supervisor, what);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    check(fd >= 0, path);
    return fd;
}

static int run(char **command) {
    execvp(command[0], command);
    fprintf(stderr, "%s: %s\n", command[0], strerror(errno));
    return 127;
}

int host_enter(int supervisor, int host, int inside, char **command) {
    char name[16];
    snprintf(name, sizeof name, "fd/%d", FIRST_NAMESPACE + host);
    int network = open_of(supervisor, name);
    int processes = inside ? open_of(supervisor, "ns/pid_for_children") : -1;
    check(!setns(network, CLONE_NEWNET), "network namespace");
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!inside) return run(command);
    check(!setns(processes, CLONE_NEWPID), "process namespace");
    pid_t child = fork();
    check(child >= 0, "fork");
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        return run(command);
    }
    int status;
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
