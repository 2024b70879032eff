// The lab's network: three hosts (client, store, function) joined by lines with real delay, rate and queue, and a meter.
//
//   link serve FOLDER PARENT [OPTION...]     until PARENT ends or the input does; then everything in it ends too
//     outside=DELAY_US,BYTES_PER_S,QUEUE_BYTES,FLOW_BYTES_PER_S    client to store and function; one way; 0: no limit
//     region=...                             function to store, in the same form
//     service=NAME,HOST,PORT,HOLD_US         what is counted; requests wait HOLD_US at its door
//     setting=ipv4/tcp_rmem=...              of every host's network
//     remove=PATH                            at the end, besides the folder
//   link probe                               whether all of this is allowed here
//   link enter SUPERVISOR HOST COMMAND...    run a command on a host
//   link start SUPERVISOR HOST COMMAND...    the same; it ends with the lab
//
// FOLDER/meter answers "read" with one line of JSON, "reset" by beginning anew.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/virtio_net.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "hosts.h"
#include "meter.h"

#define MOST_PACKET_BYTES 70000
#define MOST_READERS 16
#define BATCH 64
#define VNET sizeof(struct virtio_net_hdr)

struct packet {
    int64_t at_ns;       // when it goes on: onto the line, or out of it
    uint64_t number;     // of those for the same time the earlier goes first
    int to, service;     // service -1: not one that is counted
    unsigned segments;
    size_t wire_bytes, nbytes;
    uint8_t data[];
};

// Packets by time: a binary heap.
struct agenda {
    struct packet **heap;
    size_t n, room;
};

struct direction {
    struct agenda waiting, crossing;   // before the line (connections with a limit), and on it
    int64_t free_at_ns;
    uint64_t packets, bytes, drops, late_ns;
    int64_t most_late_ns;
};

struct line {
    const char *name;
    int64_t delay_ns, queue_bytes;
    double ns_per_byte, flow_ns_per_byte;
    struct direction to_server, to_client;
};

static struct line outside = {.name = "outside"}, region = {.name = "region"};
static struct service services[MOST_SERVICES];
static int n_services, tuns[HOSTS];
static uint64_t numbered;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static int before(const struct packet *a, const struct packet *b) {
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->number < b->number;
}

static void push(struct agenda *agenda, struct packet *packet) {
    if (agenda->n == agenda->room) {
        agenda->room = agenda->room ? 2 * agenda->room : 1024;
        agenda->heap = realloc(agenda->heap, agenda->room * sizeof *agenda->heap);
    }
    size_t at = agenda->n++;
    for (; at && before(packet, agenda->heap[(at - 1) / 2]); at = (at - 1) / 2)
        agenda->heap[at] = agenda->heap[(at - 1) / 2];
    agenda->heap[at] = packet;
}

static struct packet *pop(struct agenda *agenda) {
    struct packet *first = agenda->heap[0], *last = agenda->heap[--agenda->n];
    size_t at = 0, child;
    while ((child = 2 * at + 1) < agenda->n) {
        if (child + 1 < agenda->n && before(agenda->heap[child + 1], agenda->heap[child])) child++;
        if (!before(agenda->heap[child], last)) break;
        agenda->heap[at] = agenda->heap[child];
        at = child;
    }
    if (agenda->n) agenda->heap[at] = last;
    return first;
}

// Put a packet on the line at a time; one that finds the queue full is dropped.
static void onto_line(struct line *line, struct direction *direction, struct packet *packet, int64_t at, int64_t hold) {
    if (direction->free_at_ns < at) direction->free_at_ns = at;
    if (line->ns_per_byte > 0 && (double)(direction->free_at_ns - at) > (double)line->queue_bytes * line->ns_per_byte) {
        direction->drops += packet->segments;
        free(packet);
        return;
    }
    direction->free_at_ns += (int64_t)((double)packet->wire_bytes * line->ns_per_byte);
    packet->at_ns = direction->free_at_ns + line->delay_ns + hold;
    packet->number = numbered++;
    push(&direction->crossing, packet);
}

// A host has sent a packet.
static void sent(int from, const uint8_t *data, size_t nbytes) {
    struct virtio_net_hdr offload;
    struct segment segment;
    uint32_t address;
    if (nbytes < VNET + 20 || data[VNET] >> 4 != 4) return;
    memcpy(&offload, data, VNET);
    memcpy(&address, data + VNET + 16, 4);
    struct packet *packet = malloc(sizeof *packet + nbytes);
    memcpy(packet->data, data, nbytes);
    packet->nbytes = nbytes;
    packet->to = host_of(address);
    packet->segments = 1;
    packet->wire_bytes = nbytes - VNET;
    struct line *line = from == CLIENT || packet->to == CLIENT ? &outside : &region;
    struct direction *direction = packet->to == STORE || from == CLIENT ? &line->to_server : &line->to_client;
    int64_t at = now();
    if (!segment_read(packet->data + VNET, nbytes - VNET, services, n_services, &segment, &packet->service)) {
        packet->service = -1;
        onto_line(line, direction, packet, at, 0);
        return;
    }
    if (offload.gso_type != VIRTIO_NET_HDR_GSO_NONE && offload.gso_size && segment.nbytes) {
        packet->segments = (unsigned)((segment.nbytes + offload.gso_size - 1) / offload.gso_size);
        packet->wire_bytes = segment.nbytes + packet->segments * segment.head_bytes;
    }
    if (segment.to_server) {
        // What ends a connection must not overtake what was said in it; acknowledgements may.
        int waits = segment.nbytes || segment.flags & (FIN | RST);
        onto_line(line, direction, packet, at, waits ? services[packet->service].hold_ns : 0);
        return;
    }
    struct flow *flow = line->flow_ns_per_byte > 0 ? meter_flow(&segment, packet->service) : NULL;
    if (!flow) {
        onto_line(line, direction, packet, at, 0);
        return;
    }
    int64_t *free_at = flow_free_at(flow);
    if (*free_at < at) *free_at = at;
    if ((double)(*free_at - at) > (double)line->queue_bytes * line->flow_ns_per_byte) {
        direction->drops += packet->segments;
        free(packet);
        return;
    }
    *free_at += (int64_t)((double)packet->wire_bytes * line->flow_ns_per_byte);
    packet->at_ns = *free_at;
    packet->number = numbered++;
    push(&direction->waiting, packet);
}

static void deliver(struct direction *direction, struct packet *packet, int64_t at) {
    struct segment segment;
    int64_t late = at - packet->at_ns;
    int service;
    direction->late_ns += (uint64_t)late;
    if (late > direction->most_late_ns) direction->most_late_ns = late;
    // Counted before it is written: whoever has read the answer finds it counted.
    direction->packets += packet->segments;
    direction->bytes += packet->wire_bytes;
    if (packet->service >= 0 &&
        segment_read(packet->data + VNET, packet->nbytes - VNET, services, n_services, &segment, &service))
        meter_delivered(&segment, service, packet->segments, packet->wire_bytes, at);
    if (write(tuns[packet->to], packet->data, packet->nbytes) < 0) direction->drops += packet->segments;
    free(packet);
}

// Move what is due in one direction; return when the next is.
static int64_t move(struct line *line, struct direction *direction) {
    int64_t next = INT64_MAX;
    struct agenda *waiting = &direction->waiting, *crossing = &direction->crossing;
    while (waiting->n && waiting->heap[0]->at_ns <= now()) {
        struct packet *packet = pop(waiting);
        onto_line(line, direction, packet, packet->at_ns, 0);
    }
    for (int64_t at; crossing->n && crossing->heap[0]->at_ns <= (at = now());) deliver(direction, pop(crossing), at);
    if (waiting->n) next = waiting->heap[0]->at_ns;
    if (crossing->n && crossing->heap[0]->at_ns < next) next = crossing->heap[0]->at_ns;
    return next;
}

static void print_direction(FILE *out, const char *name, const struct direction *d) {
    fprintf(out, "\"%s\": {\"packets\": %llu, \"bytes\": %llu, \"drops\": %llu, \"late_us\": %.1f, \"most_late_us\": %.1f}",
            name, (unsigned long long)d->packets, (unsigned long long)d->bytes, (unsigned long long)d->drops,
            d->packets ? (double)d->late_ns / 1e3 / (double)d->packets : 0.0, (double)d->most_late_ns / 1e3);
}

static void answer(int reader) {
    char command[64] = "";
    char *text = NULL;
    size_t nbytes = 0;
    ssize_t n = recv(reader, command, sizeof command - 1, MSG_DONTWAIT);
    if (n <= 0) return;
    struct line *lines[] = {&outside, &region};
    FILE *out = open_memstream(&text, &nbytes);
    fputs("{\"clients\": ", out);
    meter_print(out, services);
    fputs(", \"lines\": {", out);
    for (int i = 0; i < 2; i++) {
        fprintf(out, "%s\"%s\": {", i ? ", " : "", lines[i]->name);
        print_direction(out, "to_server", &lines[i]->to_server);
        fputs(", ", out);
        print_direction(out, "to_client", &lines[i]->to_client);
        fputc('}', out);
    }
    fputs("}}\n", out);
    fclose(out);
    if (!strncmp(command, "reset", 5)) meter_reset();
    // A reader that does not read is not waited for.
    if (send(reader, text, nbytes, MSG_NOSIGNAL) < 0) shutdown(reader, SHUT_RDWR);
    free(text);
}

static void carry(int listener) {
    static uint8_t data[MOST_PACKET_BYTES];
    struct pollfd polled[HOSTS + 1 + MOST_READERS];
    int n = HOSTS + 1;
    for (int i = 0; i < HOSTS; i++) polled[i] = (struct pollfd){tuns[i], POLLIN, 0};
    polled[HOSTS] = (struct pollfd){listener, POLLIN, 0};
    for (;;) {
        int64_t next = INT64_MAX;
        struct line *lines[] = {&outside, &region};
        for (int i = 0; i < 2; i++) {
            int64_t up = move(lines[i], &lines[i]->to_server), down = move(lines[i], &lines[i]->to_client);
            if (up < next) next = up;
            if (down < next) next = down;
        }
        int64_t rest = next == INT64_MAX ? 1000000000 : next - now();
        if (rest < 0) rest = 0;
        struct timespec wait = {rest / 1000000000, rest % 1000000000};
        if (ppoll(polled, (nfds_t)n, &wait, NULL) <= 0) continue;
        for (int host = 0; host < HOSTS; host++)
            for (int i = 0; polled[host].revents & POLLIN && i < BATCH; i++) {
                ssize_t got = read(tuns[host], data, sizeof data);
                if (got <= 0) break;
                sent(host, data, (size_t)got);
            }
        for (int i = HOSTS + 1; i < n; i++) {
            if (polled[i].revents & (POLLHUP | POLLERR)) {
                close(polled[i].fd);
                polled[i--] = polled[--n];
            } else if (polled[i].revents & POLLIN) {
                answer(polled[i].fd);
            }
        }
        if (polled[HOSTS].revents & POLLIN && n < HOSTS + 1 + MOST_READERS) {
            int reader = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
            if (reader >= 0) polled[n++] = (struct pollfd){reader, POLLIN, 0};
        }
    }
}

static int listen_at(const char *folder) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    snprintf(address.sun_path, sizeof address.sun_path, "%s/meter", folder);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, 16)) {
        perror(address.sun_path);
        exit(1);
    }
    return listener;
}

static void set_line(struct line *line, const char *text) {
    double delay_us, bytes_per_s, queue_bytes, flow_bytes_per_s;
    if (sscanf(text, "%lf,%lf,%lf,%lf", &delay_us, &bytes_per_s, &queue_bytes, &flow_bytes_per_s) != 4) exit(2);
    line->delay_ns = (int64_t)(delay_us * 1e3);
    line->queue_bytes = (int64_t)queue_bytes;
    line->ns_per_byte = bytes_per_s > 0 ? 1e9 / bytes_per_s : 0;
    line->flow_ns_per_byte = flow_bytes_per_s > 0 ? 1e9 / flow_bytes_per_s : 0;
}

static void add_service(const char *text) {
    struct service *service = &services[n_services];
    int host, port;
    double hold_us;
    if (n_services == MOST_SERVICES || sscanf(text, "%31[^,],%d,%d,%lf", service->name, &host, &port, &hold_us) != 4)
        exit(2);
    service->address = host_address(host);
    service->port = (uint16_t)port;
    service->hold_ns = (int64_t)(hold_us * 1e3);
    n_services++;
}

static volatile sig_atomic_t told_to_end;
static void on_signal(int number) { (void)number, told_to_end = 1; }

// Wait until the parent ends, its pipe to us does, or the line does; then end everything and remove the folder.
static int supervise(int parent, pid_t line, char **removed) {
    int parent_fd = (int)syscall(SYS_pidfd_open, parent, 0), line_fd = (int)syscall(SYS_pidfd_open, line, 0);
    struct pollfd polled[] = {{parent_fd, POLLIN, 0}, {line_fd, POLLIN, 0}, {0, POLLIN, 0}};
    char byte;
    while (parent_fd >= 0 && line_fd >= 0 && !told_to_end) {
        if (poll(polled, 3, -1) < 0 && errno != EINTR) break;
        if ((polled[0].revents | polled[1].revents) & POLLIN) break;
        if (polled[2].revents && read(0, &byte, 1) <= 0) break;
    }
    kill(line, SIGKILL);
    waitpid(line, NULL, 0);
    hosts_clear();
    execvp("rm", removed);
    return 1;
}

static int serve(int n, char **options) {
    const char *folder = options[0];
    int parent = atoi(options[1]), n_settings = 0, n_removed = 0;
    char **settings = calloc((size_t)n, sizeof *settings), **removed = calloc((size_t)n + 5, sizeof *removed);
    removed[n_removed++] = "rm";
    removed[n_removed++] = "-rf";
    removed[n_removed++] = (char *)folder;
    for (int i = 2; i < n; i++) {
        char *value = strchr(options[i], '=');
        if (!value++) return 2;
        if (!strncmp(options[i], "outside=", 8)) set_line(&outside, value);
        else if (!strncmp(options[i], "region=", 7)) set_line(&region, value);
        else if (!strncmp(options[i], "service=", 8)) add_service(value);
        else if (!strncmp(options[i], "setting=", 8)) settings[n_settings++] = value;
        else if (!strncmp(options[i], "remove=", 7)) removed[n_removed++] = value;
        else return 2;
    }
    struct sigaction end = {.sa_handler = on_signal};
    sigaction(SIGTERM, &end, NULL);
    sigaction(SIGINT, &end, NULL);
    for (int i = 0; i < HOSTS; i++) tuns[i] = host_make(i, settings, n_settings);
    int listener = listen_at(folder);
    if (unshare(CLONE_NEWPID)) {
        perror("process namespace");
        return 1;
    }
    pid_t line = fork();
    if (line < 0) return 1;
    if (line) {
        puts("up");
        fflush(stdout);
        return supervise(parent, line, removed);
    }
    // The first of its process namespace: all that were started there end with it.
    struct sched_param priority = {.sched_priority = 1};
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    prctl(PR_SET_TIMERSLACK, 1);
    signal(SIGCHLD, SIG_IGN);
    sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority);
    carry(listener);
    return 0;
}

static int probe(void) {
    host_make(CLIENT, NULL, 0);
    if (!unshare(CLONE_NEWPID)) return 0;
    perror("process namespace");
    return 1;
}

int main(int n, char **words) {
    if (n == 2 && !strcmp(words[1], "probe")) return probe();
    if (n >= 4 && !strcmp(words[1], "serve")) return serve(n - 2, words + 2);
    if (n >= 5 && !strcmp(words[1], "enter")) return host_enter(atoi(words[2]), atoi(words[3]), 0, words + 4);
    if (n >= 5 && !strcmp(words[1], "start")) return host_enter(atoi(words[2]), atoi(words[3]), 1, words + 4);
    fprintf(stderr, "usage: link serve FOLDER PARENT OPTION... | link enter|start SUPERVISOR HOST COMMAND...\n");
    return 2;
}
