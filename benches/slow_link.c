// Slows the traffic of a Linux bridge if the kernel lacks netem: each sender gets a rate, each packet a delay.
// iptables passes the ids of packets (NFQUEUE 0); their payload stays in the kernel.
//   cc -O2 -o slow_link slow_link.c && ./slow_link GBIT MICROSECONDS
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netfilter/nfnetlink_queue.h>
#include <linux/netlink.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { MAX_HELD = 1 << 16 }; // Must exceed the length of the kernel's queue.
static struct { uint32_t id; int64_t due; } held[256][MAX_HELD]; // By sender, in order of arrival.
static uint32_t first[256], next[256];
static int64_t busy[256]; // The time at which a sender's link is free again.
static int to_kernel;

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

// Sends one message with the given attributes.
static void send_message(int type, const void *attributes, int size) {
    struct { struct nlmsghdr h; struct nfgenmsg g; char attributes[64]; } m = {{0}};
    m.h.nlmsg_len = m.attributes - (char *)&m + size;
    m.h.nlmsg_type = NFNL_SUBSYS_QUEUE << 8 | type;
    m.h.nlmsg_flags = NLM_F_REQUEST;
    memcpy(m.attributes, attributes, size);
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    if (sendto(to_kernel, &m, m.h.nlmsg_len, 0, (void *)&kernel, sizeof kernel) < 0) { perror("sendto"); exit(1); }
}

// Holds the packet of a message until its link has sent it and its delay has passed.
static void hold(struct nlmsghdr *h, double nanoseconds_per_byte, int64_t delay) {
    struct nlattr *a = (void *)((char *)NLMSG_DATA(h) + sizeof(struct nfgenmsg));
    int left = h->nlmsg_len - NLMSG_HDRLEN - sizeof(struct nfgenmsg);
    uint32_t id = 0, bytes = 0;
    uint8_t sender = 0;
    while (left >= NLA_HDRLEN) {
        uint8_t *content = (uint8_t *)a + NLA_HDRLEN;
        int size = NLA_ALIGN(a->nla_len);
        if ((a->nla_type & NLA_TYPE_MASK) == NFQA_PACKET_HDR) id = ((struct nfqnl_msg_packet_hdr *)content)->packet_id;
        // The length and the last byte of the source address in the IPv4 header.
        if ((a->nla_type & NLA_TYPE_MASK) == NFQA_PAYLOAD) bytes = content[2] << 8 | content[3], sender = content[15];
        a = (void *)((char *)a + size);
        left -= size;
    }
    int64_t begins = now() > busy[sender] ? now() : busy[sender];
    busy[sender] = begins + bytes * nanoseconds_per_byte;
    held[sender][next[sender] % MAX_HELD].id = id;
    held[sender][next[sender]++ % MAX_HELD].due = busy[sender] + delay;
}

int main(int count, char **words) {
    if (count != 3) { fprintf(stderr, "usage: slow_link GBIT MICROSECONDS\n"); return 2; }
    double nanoseconds_per_byte = 8 / atof(words[1]);
    int64_t delay = atof(words[2]) * 1000;
    prctl(PR_SET_TIMERSLACK, 1);
    to_kernel = socket(AF_NETLINK, SOCK_RAW, NETLINK_NETFILTER);
    int buffer_bytes = 1 << 24;
    setsockopt(to_kernel, SOL_SOCKET, SO_RCVBUFFORCE, &buffer_bytes, sizeof buffer_bytes);
    struct { struct nlattr a; struct nfqnl_msg_config_cmd bind; } command = {
        {8, NFQA_CFG_CMD}, {.command = NFQNL_CFG_CMD_BIND, .pf = htons(AF_INET)}};
    send_message(NFQNL_MSG_CONFIG, &command, sizeof command);
    // Copies the first 20 bytes of each packet; packets are not segmented before they have crossed the link (GSO).
    struct {
        struct nlattr a; uint32_t range; uint8_t mode, filler[3];
        struct nlattr b; uint32_t mask;
        struct nlattr c; uint32_t flags;
    } settings = {
        {9, NFQA_CFG_PARAMS}, htonl(20), NFQNL_COPY_PACKET, {0},
        {8, NFQA_CFG_MASK}, htonl(NFQA_CFG_F_GSO), {8, NFQA_CFG_FLAGS}, htonl(NFQA_CFG_F_GSO)};
    send_message(NFQNL_MSG_CONFIG, &settings, sizeof settings);
    struct { struct nlattr a; uint32_t max; } length = {{8, NFQA_CFG_QUEUE_MAXLEN}, htonl(MAX_HELD - 1)};
    send_message(NFQNL_MSG_CONFIG, &length, sizeof length);
    static char buffer[1 << 18];
    for (;;) {
        int64_t due = INT64_MAX, time = now();
        for (int sender = 0; sender < 256; sender++) {
            while (first[sender] != next[sender] && held[sender][first[sender] % MAX_HELD].due <= time) {
                struct { struct nlattr a; struct nfqnl_msg_verdict_hdr verdict; } accept = {
                    {12, NFQA_VERDICT_HDR}, {htonl(NF_ACCEPT), held[sender][first[sender]++ % MAX_HELD].id}};
                send_message(NFQNL_MSG_VERDICT, &accept, sizeof accept);
            }
            if (first[sender] != next[sender] && held[sender][first[sender] % MAX_HELD].due < due)
                due = held[sender][first[sender] % MAX_HELD].due;
        }
        struct pollfd ready = {to_kernel, POLLIN, 0};
        int64_t wait = due == INT64_MAX ? 1000000000 : due - now();
        struct timespec until = {wait < 0 ? 0 : wait / 1000000000, wait < 0 ? 0 : wait % 1000000000};
        if (ppoll(&ready, 1, &until, NULL) <= 0) continue;
        for (int size; (size = recv(to_kernel, buffer, sizeof buffer, MSG_DONTWAIT)) > 0;)
            for (struct nlmsghdr *h = (void *)buffer; NLMSG_OK(h, size); h = NLMSG_NEXT(h, size)) {
                if (h->nlmsg_type == (NFNL_SUBSYS_QUEUE << 8 | NFQNL_MSG_PACKET)) hold(h, nanoseconds_per_byte, delay);
                int error = h->nlmsg_type == NLMSG_ERROR ? ((struct nlmsgerr *)NLMSG_DATA(h))->error : 0;
                if (error) fprintf(stderr, "the kernel refused a message: error %d\n", error);
            }
    }
}
