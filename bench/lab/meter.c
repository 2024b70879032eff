#define _GNU_SOURCE
#include "meter.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#define BUCKETS 4096
#define MOST_ACCOUNTS 64
#define MOST_AHEAD_BYTES (256u << 20)
#define FORGET_NS (30 * 1000000000LL)

// Bytes that came before those in front of them.
struct piece {
    struct piece *next;
    uint32_t seq;
    size_t nbytes;
    uint8_t data[];
};

struct stream {
    int has_start, has_end;
    uint32_t start, next, end;
    struct piece *ahead, *last_ahead;
    size_t ahead_bytes;
};

struct flow {
    struct flow *next;
    uint32_t client, server;
    uint16_t client_port, server_port;
    int is_over;
    int64_t over_at_ns, free_at_ns;
    struct stream up, down;
    struct talk talk;
};

struct account {
    uint32_t client;
    int service;
    struct counts counts;
};

static struct flow *flows[BUCKETS];
static struct account accounts[MOST_ACCOUNTS];
static int n_accounts;

int segment_read(const uint8_t *packet, size_t nbytes, const struct service *services, int n, struct segment *out,
                 int *service) {
    struct iphdr ip;
    struct tcphdr tcp;
    if (nbytes < sizeof ip) return 0;
    memcpy(&ip, packet, sizeof ip);
    size_t ip_bytes = 4u * ip.ihl;
    if (ip.version != 4 || ip.protocol != IPPROTO_TCP || nbytes < ip_bytes + sizeof tcp) return 0;
    memcpy(&tcp, packet + ip_bytes, sizeof tcp);
    size_t head = ip_bytes + 4u * tcp.doff;
    if (head > nbytes) return 0;
    for (*service = 0; *service < n; ++*service) {
        const struct service *each = &services[*service];
        out->to_server = ip.daddr == each->address && ntohs(tcp.dest) == each->port;
        if (out->to_server || (ip.saddr == each->address && ntohs(tcp.source) == each->port)) break;
    }
    if (*service == n) return 0;
    out->client = out->to_server ? ip.saddr : ip.daddr;
    out->server = out->to_server ? ip.daddr : ip.saddr;
    out->client_port = ntohs(out->to_server ? tcp.source : tcp.dest);
    out->server_port = ntohs(out->to_server ? tcp.dest : tcp.source);
    out->seq = ntohl(tcp.seq);
    out->flags = (tcp.fin ? FIN : 0) | (tcp.syn ? SYN : 0) | (tcp.rst ? RST : 0);
    out->payload = packet + head;
    out->head_bytes = head;
    out->nbytes = nbytes - head;
    return 1;
}

static struct counts *account(uint32_t client, int service) {
    for (int i = 0; i < n_accounts; i++)
        if (accounts[i].client == client && accounts[i].service == service) return &accounts[i].counts;
    // Beyond the limit the last one takes all, which `unknown` then says.
    if (n_accounts == MOST_ACCOUNTS) {
        accounts[MOST_ACCOUNTS - 1].counts.unknown++;
        return &accounts[MOST_ACCOUNTS - 1].counts;
    }
    accounts[n_accounts] = (struct account){.client = client, .service = service};
    return &accounts[n_accounts++].counts;
}

static void stream_free(struct stream *stream) {
    while (stream->ahead) {
        struct piece *piece = stream->ahead;
        stream->ahead = piece->next;
        free(piece);
    }
    stream->last_ahead = NULL;
    stream->ahead_bytes = 0;
}

static void flow_empty(struct flow *flow) {
    talk_closed(&flow->talk);
    talk_free(&flow->talk);
    stream_free(&flow->up);
    stream_free(&flow->down);
}

static struct flow **bucket_of(const struct segment *segment) {
    uint32_t mixed = segment->client * 2654435761u ^ segment->client_port * 40503u ^ segment->server_port * 7919u;
    return &flows[(mixed ^ mixed >> 16) % BUCKETS];
}

struct flow *meter_flow(const struct segment *segment, int service) {
    struct flow **bucket = bucket_of(segment), *flow;
    for (flow = *bucket; flow; flow = flow->next)
        if (flow->client == segment->client && flow->client_port == segment->client_port &&
            flow->server == segment->server && flow->server_port == segment->server_port)
            break;
    int calls = segment->to_server && segment->flags & SYN;
    if (flow && calls && flow->up.start != segment->seq + 1) {
        // The same port again: another connection.
        struct flow *next = flow->next;
        flow_empty(flow);
        memset(flow, 0, sizeof *flow);
        flow->next = next;
    } else if (flow || !calls) {
        return flow;
    } else {
        flow = calloc(1, sizeof *flow);
        flow->next = *bucket;
        *bucket = flow;
    }
    flow->client = segment->client;
    flow->server = segment->server;
    flow->client_port = segment->client_port;
    flow->server_port = segment->server_port;
    flow->up.has_start = 1;
    flow->up.start = flow->up.next = segment->seq + 1;
    talk_start(&flow->talk, account(segment->client, service));
    flow->talk.counts->connections++;
    return flow;
}

int64_t *flow_free_at(struct flow *flow) { return &flow->free_at_ns; }

static void forget_old(int64_t now_ns) {
    static int64_t swept_at;
    if (now_ns - swept_at < FORGET_NS) return;
    swept_at = now_ns;
    for (int i = 0; i < BUCKETS; i++)
        for (struct flow **at = &flows[i]; *at;) {
            struct flow *flow = *at;
            if (!flow->is_over || now_ns - flow->over_at_ns < FORGET_NS) {
                at = &flow->next;
                continue;
            }
            *at = flow->next;
            flow_empty(flow);
            free(flow);
        }
}

static void keep_ahead(struct stream *stream, const uint8_t *data, uint32_t seq, size_t nbytes) {
    struct piece *piece = malloc(sizeof *piece + nbytes);
    piece->seq = seq;
    piece->nbytes = nbytes;
    memcpy(piece->data, data, nbytes);
    stream->ahead_bytes += nbytes;
    struct piece **at = &stream->ahead;
    // Most come in order, behind what is kept already.
    if (stream->last_ahead && (int32_t)(seq - stream->last_ahead->seq) >= 0) at = &stream->last_ahead->next;
    while (*at && (int32_t)((*at)->seq - seq) < 0) at = &(*at)->next;
    piece->next = *at;
    *at = piece;
    if (!piece->next) stream->last_ahead = piece;
}

typedef void (*hear)(struct talk *, const uint8_t *, size_t);

static void stream_take(struct flow *flow, struct stream *stream, struct side *side, hear hears,
                        const struct segment *segment) {
    struct counts *counts = flow->talk.counts;
    const uint8_t *data = segment->payload;
    size_t nbytes = segment->nbytes;
    int32_t off = (int32_t)(segment->seq - stream->next);
    if (side->phase == LOST) {
        counts->unknown_bytes += nbytes;
        return;
    }
    if (off < 0) {
        size_t known = (size_t)-off < nbytes ? (size_t)-off : nbytes;
        counts->repeated_bytes += known;
        data += known;
        nbytes -= known;
        off = 0;
    }
    if (nbytes && off > 0) {
        if (stream->ahead_bytes + nbytes > MOST_AHEAD_BYTES) {
            talk_lost(&flow->talk, side);
            stream_free(stream);
            return;
        }
        keep_ahead(stream, data, segment->seq, nbytes);
    } else if (nbytes) {
        stream->next += (uint32_t)nbytes;
        hears(&flow->talk, data, nbytes);
    }
    while (stream->ahead && (off = (int32_t)(stream->next - stream->ahead->seq)) >= 0) {
        struct piece *piece = stream->ahead;
        size_t known = (size_t)off < piece->nbytes ? (size_t)off : piece->nbytes;
        stream->next += (uint32_t)(piece->nbytes - known);
        counts->repeated_bytes += known;
        hears(&flow->talk, piece->data + known, piece->nbytes - known);
        stream->ahead_bytes -= piece->nbytes;
        stream->ahead = piece->next;
        if (!stream->ahead) stream->last_ahead = NULL;
        free(piece);
    }
}

void meter_delivered(const struct segment *segment, int service, unsigned packets, size_t wire_bytes, int64_t now_ns) {
    struct flow *flow = meter_flow(segment, service);
    struct counts *counts = flow ? flow->talk.counts : account(segment->client, service);
    int back = !segment->to_server;
    counts->packets[back] += packets;
    counts->wire_bytes[back] += wire_bytes;
    if (!flow) {
        // Bytes of a connection whose start was not seen: not silently left out.
        if (segment->nbytes) counts->unknown_bytes += segment->nbytes, counts->unknown++;
        return;
    }
    struct stream *stream = back ? &flow->down : &flow->up;
    struct side *side = back ? &flow->talk.down : &flow->talk.up;
    if (back && segment->flags & SYN && !stream->has_start) {
        stream->has_start = 1;
        stream->start = stream->next = segment->seq + 1;
    }
    if (segment->flags & FIN) {
        stream->has_end = 1;
        stream->end = segment->seq + (uint32_t)segment->nbytes;
    }
    if (segment->nbytes && !(segment->flags & SYN) && stream->has_start)
        stream_take(flow, stream, side, back ? talk_from_server : talk_from_client, segment);
    if (back && stream->has_end && stream->end == stream->next) talk_server_ended(&flow->talk);
    if (segment->flags & RST) talk_closed(&flow->talk);
    if (flow->talk.is_closed && !flow->is_over) {
        flow->is_over = 1;
        flow->over_at_ns = now_ns;
    }
    forget_old(now_ns);
}

void meter_reset(void) {
    for (int i = 0; i < n_accounts; i++) memset(&accounts[i].counts, 0, sizeof accounts[i].counts);
}

static unsigned open_requests(const struct counts *counts) {
    unsigned open = 0;
    for (int i = 0; i < BUCKETS; i++)
        for (const struct flow *flow = flows[i]; flow; flow = flow->next)
            if (flow->talk.counts == counts) open += talk_open(&flow->talk);
    return open;
}

static void field(FILE *out, const char *name, uint64_t value) {
    fprintf(out, ", \"%s\": %llu", name, (unsigned long long)value);
}

void meter_print(FILE *out, const struct service *services) {
    fputc('[', out);
    for (int i = 0; i < n_accounts; i++) {
        const struct counts *c = &accounts[i].counts;
        char address[INET_ADDRSTRLEN];
        inet_ntop(AF_INET, &accounts[i].client, address, sizeof address);
        fprintf(out, "%s{\"client\": \"%s\", \"service\": \"%s\"", i ? ", " : "", address,
                services[accounts[i].service].name);
        for (int m = 0; m < METHODS; m++) {
            char name[8] = "";
            for (int k = 0; METHOD_NAMES[m][k]; k++) name[k] = (char)(METHOD_NAMES[m][k] | 0x20);
            field(out, name, c->methods[m]);
        }
        for (int s = 2; s < 6; s++) {
            char name[24];
            snprintf(name, sizeof name, "status_%dxx", s);
            field(out, name, c->statuses[s]);
        }
        field(out, "informational", c->informational);
        field(out, "answers", c->answers);
        field(out, "request_bytes", c->request_bytes);
        field(out, "response_bytes", c->response_bytes);
        field(out, "unfinished", c->unfinished);
        field(out, "unfinished_bytes", c->unfinished_bytes);
        field(out, "unknown", c->unknown);
        field(out, "unknown_bytes", c->unknown_bytes);
        field(out, "connections", c->connections);
        field(out, "repeated_bytes", c->repeated_bytes);
        field(out, "packets_up", c->packets[0]);
        field(out, "packets_down", c->packets[1]);
        field(out, "wire_bytes_up", c->wire_bytes[0]);
        field(out, "wire_bytes_down", c->wire_bytes[1]);
        field(out, "open", open_requests(c));
        fputc('}', out);
    }
    fputc(']', out);
}
