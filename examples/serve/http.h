/* http.h: what the header of a request shows before its body is read: how the body is framed, and
   for whom it was sent.

       request_head h = {0};
       MHD_get_connection_values(connection, MHD_HEADER_KIND, head_line, &h);
       ... head_framing(&h, version, most, &why) || head_site(&h, &site, &why) ...

   FRAMING   Two servers that disagree where a request ends take the rest of it for another one,
             which its sender chose (request smuggling). What RFC 9112 calls ambiguous is refused,
             and the connection is closed.
   SITE      A page of another site may send requests to this machine from a browser on it, also by
             a name of its own that leads here (DNS rebinding). Without an API key a request must
             therefore name this server by an address, by localhost, by a name without a dot, which
             no site can have, or by one of --server-name; and an Origin, which browsers add, must
             be this server's or one of --cors.

   Functions return 0, or -1 and why. Needs libmicrohttpd for its types. */
#ifndef SERVE_HTTP_H
#define SERVE_HTTP_H

#include "request.h"

#include <arpa/inet.h>
#include <strings.h>

#include <microhttpd.h>

#define MAX_NAME_BYTES 256u /* of a host: a longer one is no name */

typedef struct request_head {
    size_t bytes; /* of names and values, and four for each line */
    uint32_t hosts, lengths, encodings, bad_names;
    const char *host, *length, *encoding, *origin; /* the last of each; null: none */
} request_head;

/* Whom a server without a key takes requests for. */
typedef struct http_site {
    const char *names;   /* of hosts, with commas between; or null */
    const char *origins; /* of other sites, with commas between, or "*"; or null */
    uint32_t has_key;    /* 1: the key protects it */
} http_site;

/* libmicrohttpd calls this for each line of the header. */
static enum MHD_Result head_line(void *user, enum MHD_ValueKind kind, const char *name,
                                 const char *value)
{
    request_head *h = (request_head *)user;
    const size_t n = strlen(name);
    (void)kind;
    if (!value) value = "";
    h->bytes += n + strlen(value) + 4;
    /* A name ends at the colon: with a space before it, others may not know the line. */
    if (!n || strcspn(name, " \t") != n) h->bad_names++;
    if (!strcasecmp(name, MHD_HTTP_HEADER_HOST)) h->hosts++, h->host = value;
    if (!strcasecmp(name, MHD_HTTP_HEADER_CONTENT_LENGTH)) h->lengths++, h->length = value;
    if (!strcasecmp(name, MHD_HTTP_HEADER_TRANSFER_ENCODING)) h->encodings++, h->encoding = value;
    if (!strcasecmp(name, MHD_HTTP_HEADER_ORIGIN)) h->origin = value;
    return MHD_YES;
}

/* Refusals after which the connection cannot go on: where the next request begins is not certain.
   */
static int head_framing(const request_head *h, const char *version, size_t most, refusal *why)
{
    if (h->bad_names) return refuse(why, 400, "", "a header has a name with a space in it");
    if (h->bytes > most)
        return refuse(why, 431, "", "the header has %zu bytes, at most %zu are taken", h->bytes,
                      most);
    if (h->hosts > 1 || (!h->hosts && !strcmp(version, MHD_HTTP_VERSION_1_1)))
        return refuse(why, 400, "Host", "must be given once");
    if (h->lengths > 1) return refuse(why, 400, "Content-Length", "is given more than once");
    if (h->lengths && h->encodings)
        return refuse(why, 400, "Content-Length", "must not stand beside Transfer-Encoding");
    if (h->encodings > 1 || (h->encodings && strcasecmp(h->encoding, "chunked")))
        return refuse(why, 501, "Transfer-Encoding", "only \"chunked\" is supported, once");
    return 0;
}

/* Whether the name is one of a list with commas. */
static int is_listed(const char *list, const char *name, size_t size)
{
    while (list && *list) {
        const size_t n = strcspn(list, ",");
        if (n == size && !strncasecmp(list, name, n)) return 1;
        list += n + (list[n] == ',');
    }
    return 0;
}

/* The host of an authority, "host:port" or "[address]:port", without the port. */
static int host_of(const char *authority, size_t size, char *host)
{
    size_t n = 0, from = 0;
    if (size && authority[0] == '[') {
        from = 1;
        while (from + n < size && authority[from + n] != ']') n++;
    } else {
        while (n < size && authority[n] != ':') n++;
    }
    if (!n || n >= MAX_NAME_BYTES) return -1;
    memcpy(host, authority + from, n);
    host[n] = 0;
    return 0;
}

/* A name that no other site can have, or one that the user has given. */
static int host_is_ours(const char *authority, size_t size, const char *names)
{
    static const char local[] = ".localhost";
    unsigned char address[16];
    char host[MAX_NAME_BYTES];
    size_t n;
    if (host_of(authority, size, host)) return 0;
    n = strlen(host);
    return inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1 ||
           !strchr(host, '.') ||
           (n > sizeof local - 1 && !strcasecmp(host + n - (sizeof local - 1), local)) ||
           is_listed(names, host, n);
}

/* Whether a page of this origin is one of --cors. */
static int origin_is_listed(const char *origins, const char *origin)
{
    return origins && (!strcmp(origins, "*") || is_listed(origins, origin, strlen(origin)));
}

static int head_site(const request_head *h, const http_site *site, refusal *why)
{
    const char *host = h->host ? h->host : "", *scheme;
    if (site->has_key) return 0;
    if (h->host && !host_is_ours(host, strlen(host), site->names))
        return refuse(why, 403, "Host",
                      "\"%.100s\" is no name of this server; --server-name adds one", host);
    if (!h->origin || origin_is_listed(site->origins, h->origin)) return 0;
    scheme = strstr(h->origin, "://");
    if (scheme && !strcasecmp(scheme + 3, host)) return 0; /* a page of this server's own */
    return refuse(why, 403, "Origin",
                  "pages of \"%.100s\" may not use this server; --cors lets them", h->origin);
}

/* Whether the header names JSON as the type of the body. */
static int is_json_type(const char *type)
{
    static const char json[] = "application/json";
    return !strncasecmp(type, json, sizeof json - 1) && strchr("; \t", type[sizeof json - 1]);
}

/* The credentials of "Bearer CREDENTIALS"; null: there are none. */
static const char *bearer_of(const char *authorization)
{
    const char *at = authorization + 6;
    if (strncasecmp(authorization, "Bearer", 6) || *at != ' ') return NULL;
    return at + strspn(at, " ");
}

#endif /* SERVE_HTTP_H */
