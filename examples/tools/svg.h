/* svg.h - what the tools that draw pictures share: a text that grows, escapes for XML, and colours

   Include it from C11 or C++17. Needs nothing of fleet. */
#ifndef SVG_H
#define SVG_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

/* A text that is written into the caller's buffer. `length` counts what has been put, whether it fits or not, so that a
   tool can return it as snprintf does. */
typedef struct svg_text {
    char *text;
    size_t bytes, length;
} svg_text;

static inline svg_text svg_text_in(char *text, size_t bytes)
{
    svg_text out = {text, text ? bytes : 0, 0};
    if (out.bytes) text[0] = 0;
    return out;
}

#if defined(__GNUC__)
__attribute__((format(printf, 2, 3)))
#endif
static inline void
svg_put(svg_text *out, const char *format, ...)
{
    const size_t room = out->length < out->bytes ? out->bytes - out->length : 0;
    int n;
    va_list list;
    va_start(list, format);
    n = vsnprintf(room ? out->text + out->length : NULL, room, format, list);
    va_end(list);
    if (n > 0) out->length += (size_t)n;
}

/* Puts at most `limit` characters of a text for XML: printable ASCII, escaped; other characters become '?'. */
static inline void svg_put_xml(svg_text *out, const char *text, size_t limit)
{
    for (; *text && limit; text++, limit--) {
        if (*text == '&' || *text == '<' || *text == '>' || *text == '"' || *text == '\'')
            svg_put(out, "&#%d;", *text);
        else
            svg_put(out, "%c", *text >= ' ' && *text <= '~' ? *text : '?');
    }
}

/* A style for dark themes: what the tools draw in greys, in other greys. */
#define SVG_DARK                                                                                   \
    "@media (prefers-color-scheme: dark){svg{fill:#e6edf3}[fill=\"#fbfbfb\"]{fill:#0d1117}"        \
    "[fill=\"#eee\"],[fill=\"#e4e4e4\"]{fill:#21262d}[fill=\"#c4c4c4\"]{fill:#6e7681}"             \
    "[fill=\"#555\"]{fill:#f0f6fc}[stroke=\"#d00000\"]{stroke:#ff5c5c}}"

#define SVG_COLOURS 12u

/* A fill colour; numbers from SVG_COLOURS on repeat the first ones. */
static inline const char *svg_colour(uint32_t number)
{
    static const char *const colour[SVG_COLOURS] = {"#7fb2e5", "#f2a65a", "#8fce8f", "#e58f8f",
                                                    "#b79fe0", "#d9c265", "#6fcac6", "#e59fc8",
                                                    "#a8b0bd", "#c59a7a", "#b5d96a", "#8a9bf0"};
    return colour[number % SVG_COLOURS];
}

#endif /* SVG_H */
