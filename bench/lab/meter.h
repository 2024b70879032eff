// The meter: puts the TCP streams of delivered packets together again and counts what is said in them.
#ifndef LAB_METER_H
#define LAB_METER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "http.h"

// A TCP packet over IPv4. `to_server` says who sent it: the side that listens, or the one that calls.
struct segment {
    uint32_t client, server;       // addresses, as on the wire
    uint16_t client_port, server_port;
    int to_server;
    uint32_t seq;
    uint8_t flags;
    const uint8_t *payload;
    size_t nbytes, head_bytes;
};

enum { FIN = 1, SYN = 2, RST = 4 };

struct service {
    char name[32];
    uint32_t address;
    uint16_t port;
    int64_t hold_ns;               // how long it takes to begin an answer
};

#define MOST_SERVICES 8

struct flow;

// Read a packet; return 0 if it is not TCP with one of the services.
int segment_read(const uint8_t *packet, size_t nbytes, const struct service *services, int n, struct segment *out,
                 int *service);
// Return the connection that a segment belongs to, or NULL. One that calls (SYN) starts it.
struct flow *meter_flow(const struct segment *segment, int service);
// When the next byte of a limited connection may leave, in nanoseconds.
int64_t *flow_free_at(struct flow *flow);
// A segment was delivered: `wire_bytes` in `packets` as they are on a wire.
void meter_delivered(const struct segment *segment, int service, unsigned packets, size_t wire_bytes, int64_t now_ns);
void meter_reset(void);
// Write everything as JSON: a list with one object per client and service.
void meter_print(FILE *out, const struct service *services);

#endif
