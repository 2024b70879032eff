#define _GNU_SOURCE
#include "http.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define MOST_HEAD_BYTES (256 * 1024)

const char *const METHOD_NAMES[METHODS] = {"GET", "HEAD", "PUT", "POST", "DELETE", "OTHER"};

void talk_start(struct talk *talk, struct counts *counts) {
    memset(talk, 0, sizeof *talk);
    talk->counts = counts;
}

void talk_free(struct talk *talk) {
    free(talk->up.head);
    free(talk->down.head);
    talk->up.head = talk->down.head = NULL;
}

void talk_lost(struct talk *talk, struct side *side) {
    if (side->phase == LOST) return;
    side->phase = LOST;
    talk->counts->unknown++;
}

unsigned talk_open(const struct talk *talk) {
    return talk->is_closed ? 0 : talk->n_waiting;
}

// Return the value of a header, or NULL; `found` counts how often it is there.
static const char *header(const char *head, const char *name, int *found) {
    const char *value = NULL;
    size_t length = strlen(name);
    *found = 0;
    for (const char *line = strstr(head, "\r\n"); line && line[2]; line = strstr(line + 2, "\r\n")) {
        const char *at = line + 2;
        if (strncasecmp(at, name, length) || at[length] != ':') continue;
        value = at + length + 1;
        value += strspn(value, " \t");
        ++*found;
    }
    return value;
}

static int value_has(const char *value, const char *word) {
    size_t length = strlen(word);
    for (; value && *value && *value != '\r'; value++)
        if (!strncasecmp(value, word, length)) return 1;
    return 0;
}

// Take bytes into the head until its empty line; return how many were taken. `done` says that it is complete.
static size_t take_head(struct side *side, const uint8_t *data, size_t nbytes, int *done) {
    size_t taken = 0;
    *done = 0;
    while (taken < nbytes) {
        // Empty lines between messages are allowed.
        if (!side->head_bytes && (data[taken] == '\r' || data[taken] == '\n')) {
            taken++;
            continue;
        }
        if (side->head_bytes + 2 > side->head_room) {
            side->head_room = side->head_room ? 2 * side->head_room : 1024;
            side->head = realloc(side->head, side->head_room);
        }
        side->head[side->head_bytes++] = (char)data[taken++];
        if (side->head_bytes >= 4 && !memcmp(side->head + side->head_bytes - 4, "\r\n\r\n", 4)) {
            side->head[side->head_bytes] = 0;
            *done = 1;
            return taken;
        }
        if (side->head_bytes > MOST_HEAD_BYTES) return taken;
    }
    return taken;
}

// Choose how the body is framed from the head; return 0 if that cannot be known.
static int frame(struct side *side, int may_last_until_close) {
    int lengths, codings;
    const char *length = header(side->head, "content-length", &lengths);
    const char *coding = header(side->head, "transfer-encoding", &codings);
    side->body = side->left = 0;
    side->digits = 0;
    if (codings) {
        if (codings > 1 || !value_has(coding, "chunked")) return 0;
        side->phase = CHUNK_SIZE;
        return 1;
    }
    if (lengths > 1) return 0;
    if (lengths) {
        char *end;
        if (!isdigit((unsigned char)*length)) return 0;
        side->left = strtoull(length, &end, 10);
        if (*end != '\r' && *end != ' ') return 0;
        side->phase = IN_BODY;
        return 1;
    }
    side->phase = may_last_until_close ? UNTIL_CLOSE : IN_BODY;
    return 1;
}

static int hex(uint8_t c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// One byte of the framing of chunks; return 0 if it is none, 2 at the end of the body.
static int chunk_byte(struct side *side, uint8_t c) {
    switch (side->phase) {
    case CHUNK_SIZE:
        if (hex(c) >= 0 && side->digits < 15) {
            side->left = 16 * side->left + (unsigned)hex(c);
            side->digits++;
            return 1;
        }
        if (!side->digits || (c != '\r' && c != ';' && c != ' ')) return 0;
        side->phase = c == '\r' ? CHUNK_SIZE_LF : CHUNK_NOTE;
        return 1;
    case CHUNK_NOTE:
        if (c == '\r') side->phase = CHUNK_SIZE_LF;
        return 1;
    case CHUNK_SIZE_LF:
        side->phase = side->left ? CHUNK_DATA : TRAILER;
        side->digits = 0;
        return c == '\n';
    case CHUNK_CR:
        side->phase = CHUNK_LF;
        return c == '\r';
    case CHUNK_LF:
        side->phase = CHUNK_SIZE;
        return c == '\n';
    case TRAILER:
        side->phase = c == '\r' ? TRAILER_LF : TRAILER_LINE;
        return 1;
    case TRAILER_LINE:
        if (c == '\n') side->phase = TRAILER;
        return 1;
    default:
        return c == '\n' ? 2 : 0;
    }
}

enum progress { BROKEN, MORE, DONE };

// Take bytes of the body; `taken` says how many, `body` how many of them are its own and not framing.
static enum progress take_body(struct side *side, const uint8_t *data, size_t nbytes, size_t *taken, uint64_t *body) {
    *taken = 0;
    *body = 0;
    if (side->phase == UNTIL_CLOSE) {
        *taken = *body = nbytes;
        side->body += nbytes;
        return MORE;
    }
    for (;;) {
        if (side->phase == IN_BODY && !side->left) return DONE;
        if (*taken == nbytes) return MORE;
        if (side->phase == IN_BODY || side->phase == CHUNK_DATA) {
            size_t step = nbytes - *taken;
            if (step > side->left) step = side->left;
            side->left -= step;
            side->body += step;
            *taken += step;
            *body += step;
            if (side->phase == CHUNK_DATA && !side->left) side->phase = CHUNK_CR;
            continue;
        }
        int is = chunk_byte(side, data[(*taken)++]);
        if (is != 1) return is ? DONE : BROKEN;
    }
}

static void next_message(struct side *side) {
    side->phase = IN_HEAD;
    side->head_bytes = 0;
}

static int request_head(struct talk *talk) {
    struct side *side = &talk->up;
    int found, method = 0;
    const char *space = strchr(side->head, ' ');
    const char *line_end = strstr(side->head, "\r\n");
    if (!space || line_end - space < 9 || strncmp(line_end - 9, " HTTP/1.", 8)) return 0;
    while (method < OTHER && strncmp(side->head, METHOD_NAMES[method], (size_t)(space - side->head))) method++;
    if (method < OTHER && strlen(METHOD_NAMES[method]) != (size_t)(space - side->head)) method = OTHER;
    if (talk->n_waiting == MOST_WAITING || !frame(side, 0)) return 0;
    talk->expects_continue = value_has(header(side->head, "expect", &found), "100-continue");
    talk->waiting[(talk->first + talk->n_waiting++) % MOST_WAITING] = (uint8_t)method;
    talk->counts->methods[method]++;
    return 1;
}

void talk_from_client(struct talk *talk, const uint8_t *data, size_t nbytes) {
    struct side *side = &talk->up;
    while (nbytes && side->phase != LOST) {
        if (side->phase == IN_HEAD) {
            int done;
            size_t taken = take_head(side, data, nbytes, &done);
            data += taken;
            nbytes -= taken;
            if (done ? !request_head(talk) : side->head_bytes > MOST_HEAD_BYTES) talk_lost(talk, side);
            if (!done) continue;
        }
        if (side->phase == LOST) break;
        size_t taken;
        uint64_t body;
        enum progress is = take_body(side, data, nbytes, &taken, &body);
        talk->counts->request_bytes += body;
        data += taken;
        nbytes -= taken;
        if (is == BROKEN) talk_lost(talk, side);
        if (is == DONE) next_message(side);
    }
    if (side->phase == LOST) talk->counts->unknown_bytes += nbytes;
}

static void answer_done(struct talk *talk) {
    talk->counts->answers++;
    talk->counts->response_bytes += talk->down.body;
    talk->first = (talk->first + 1) % MOST_WAITING;
    talk->n_waiting--;
    next_message(&talk->down);
}

// Read the head of an answer; return 0 if it cannot be followed.
static int response_head(struct talk *talk) {
    struct side *side = &talk->down;
    if (strncmp(side->head, "HTTP/1.", 7) || !talk->n_waiting) return 0;
    const char *space = strchr(side->head, ' ');
    int status = space ? atoi(space + 1) : 0;
    if (status < 100 || status > 599 || status == 101) return 0;
    if (status < 200) {
        talk->counts->informational++;
        next_message(side);
        return 1;
    }
    talk->counts->statuses[status / 100]++;
    // Who is told no before the body does not send it.
    if (talk->expects_continue && talk->n_waiting == 1 && talk->up.phase != IN_HEAD && !talk->up.body)
        next_message(&talk->up);
    talk->expects_continue = 0;
    if (!frame(side, 1)) return 0;
    if (talk->waiting[talk->first] == HEAD || status == 204 || status == 304) {
        side->phase = IN_BODY;
        side->left = 0;
    }
    return 1;
}

void talk_from_server(struct talk *talk, const uint8_t *data, size_t nbytes) {
    struct side *side = &talk->down;
    while (side->phase != LOST) {
        if (side->phase == IN_HEAD) {
            if (!nbytes) return;
            int done;
            size_t taken = take_head(side, data, nbytes, &done);
            data += taken;
            nbytes -= taken;
            if (done ? !response_head(talk) : side->head_bytes > MOST_HEAD_BYTES) talk_lost(talk, side);
            if (!done || side->phase == IN_HEAD) continue;
        }
        if (side->phase == LOST) break;
        size_t taken;
        uint64_t body;
        enum progress is = take_body(side, data, nbytes, &taken, &body);
        data += taken;
        nbytes -= taken;
        if (is == BROKEN) talk_lost(talk, side);
        if (is == DONE) answer_done(talk);
        if (is == MORE) return;
    }
    talk->counts->unknown_bytes += nbytes;
}

void talk_server_ended(struct talk *talk) {
    if (talk->is_closed) return;
    if (talk->down.phase == UNTIL_CLOSE) answer_done(talk);
    talk_closed(talk);
}

void talk_closed(struct talk *talk) {
    if (talk->is_closed) return;
    talk->is_closed = 1;
    talk->counts->unfinished += talk->n_waiting;
    if (talk->n_waiting && talk->down.phase != IN_HEAD && talk->down.phase != LOST)
        talk->counts->unfinished_bytes += talk->down.body;
    talk->n_waiting = 0;
}
