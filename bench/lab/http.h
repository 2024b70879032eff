// HTTP/1.1 as it is seen on a line: the framing of both directions of one connection, and what is counted of it.
#ifndef LAB_HTTP_H
#define LAB_HTTP_H

#include <stddef.h>
#include <stdint.h>

enum method { GET, HEAD, PUT, POST, DELETE, OTHER, METHODS };
extern const char *const METHOD_NAMES[METHODS];

// What one client did at one service. Everything here can be set to zero at any time.
struct counts {
    uint64_t methods[METHODS];  // requests whose head has arrived
    uint64_t request_bytes;     // of their bodies
    uint64_t statuses[6];       // final answers, by their hundreds
    uint64_t informational;     // 1xx
    uint64_t answers;           // complete
    uint64_t response_bytes;    // bodies of complete answers, without their chunks' framing
    uint64_t unfinished;        // requests that the connection's end left without a complete answer
    uint64_t unfinished_bytes;  // of their bodies, as far as they came
    uint64_t unknown;           // messages whose framing could not be followed
    uint64_t unknown_bytes;
    uint64_t connections;
    uint64_t repeated_bytes;    // delivered more than once
    uint64_t packets[2], wire_bytes[2];  // delivered to the server, to the client
};

enum phase {
    IN_HEAD, IN_BODY, CHUNK_SIZE, CHUNK_NOTE, CHUNK_SIZE_LF, CHUNK_DATA, CHUNK_CR, CHUNK_LF, TRAILER, TRAILER_LINE,
    TRAILER_LF, UNTIL_CLOSE, LOST
};

// One direction.
struct side {
    enum phase phase;
    uint64_t left;       // of the body, or of the chunk
    uint64_t body;       // bytes of the body so far
    char *head;
    size_t head_bytes, head_room;
    int digits;          // of the chunk's size
};

#define MOST_WAITING 256

struct talk {
    struct counts *counts;
    struct side up, down;                 // the client's bytes, the server's
    uint8_t waiting[MOST_WAITING];        // methods of the requests without a complete answer, oldest first
    unsigned first, n_waiting;
    int expects_continue;                 // the request at hand waits for "100" before its body
    int is_closed;
};

void talk_start(struct talk *talk, struct counts *counts);
void talk_from_client(struct talk *talk, const uint8_t *data, size_t nbytes);
void talk_from_server(struct talk *talk, const uint8_t *data, size_t nbytes);
void talk_lost(struct talk *talk, struct side *side);  // bytes are missing for good
void talk_server_ended(struct talk *talk);             // its FIN: no further bytes come
void talk_closed(struct talk *talk);                   // neither side will speak again
unsigned talk_open(const struct talk *talk);           // requests that wait for the end of their answer
void talk_free(struct talk *talk);

#endif
