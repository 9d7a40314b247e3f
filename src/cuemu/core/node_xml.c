/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Read NCCL topology files. Elements without information on GPUs, their links
 * or network devices' names are skipped.
 */

#include "node_xml.h"

#include "hardware.h"

#include <libxml/parser.h>
#include <libxml/tree.h>
#include <libxml/xmlerror.h>

#include <ctype.h>
#include <errno.h>
#include <fenv.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define CUEMU_XML_MAX_DEPTH     (CUEMU_MAX_PCI_PATH - 1)
#define CUEMU_XML_MAX_FILE_SIZE (16l << 20)
#define CUEMU_PCIE_MAX_WIDTH    32

cuemu_status_t cuemu_xml_error(const cuemu_xml_t *xml, int line,
                               const char *format, ...)
{
    const char *path = xml->path;
    char *pos        = xml->errbuf;
    size_t left      = CUEMU_ERRBUF_SIZE;
    va_list ap;
    int n;

    /* leave room for the reason behind a long path */
    if ((strlen(path) > CUEMU_ERRBUF_SIZE / 2) && strrchr(path, '/')) {
        path = strrchr(path, '/') + 1;
    }
    n = snprintf(pos, left, "%.*s:%d: ", CUEMU_ERRBUF_SIZE / 2, path, line);
    if ((n > 0) && ((size_t)n < left)) {
        va_start(ap, format);
        vsnprintf(pos + n, left - (size_t)n, format, ap);
        va_end(ap);
    }
    return CUEMU_ERR_PARSE;
}

int cuemu_xml_busid(const char *text, char *busid_p)
{
    unsigned domain, bus, dev, func;
    int used = 0;

    if ((sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &dev, &func,
                &used) != 4) || (text[used] != '\0') || (dev > 31) ||
        (func > 7)) {
        return 0;
    }
    snprintf(busid_p, CUEMU_BUSID_SIZE, "%04x:%02x:%02x.%x", domain,
             bus & 0xff, dev & 0xff, func & 0xf);
    return 1;
}

static int cuemu_xml_line(const xmlNode *elem)
{
    return (int)xmlGetLineNo((xmlNode*)elem);
}

static int cuemu_xml_is(const xmlNode *elem, const char *name)
{
    return (elem->type == XML_ELEMENT_NODE) &&
           (strcmp((const char*)elem->name, name) == 0);
}

static int cuemu_xml_hex(char digit)
{
    return (digit <= '9') ? (digit - '0') : ((digit | 0x20) - 'a' + 10);
}

/* Copy an attribute's value, cut to `size` with the final zero. Return 1, or 0
   with an empty text if the element lacks the attribute. */
static int cuemu_xml_text(const xmlNode *elem, const char *name, char *text_p,
                          size_t size)
{
    xmlChar *value = xmlGetProp((xmlNode*)elem, (const xmlChar*)name);

    text_p[0] = '\0';
    if (value == NULL) {
        return 0;
    }
    snprintf(text_p, size, "%s", (const char*)value);
    xmlFree(value);
    return 1;
}

/* Read an attribute as an integer; `missing` if absent or empty. PARSE, with a
   sentence, if it is not a number from `min` to `max`. */
static cuemu_status_t cuemu_xml_int(const cuemu_xml_t *xml, const xmlNode *elem,
                                    const char *name, int missing, int min,
                                    int max, int *value_p)
{
    char text[CUEMU_XML_TEXT];
    char *end;
    long value;

    *value_p = missing;
    if (!cuemu_xml_text(elem, name, text, sizeof(text)) || (text[0] == '\0')) {
        return CUEMU_OK;
    }

    errno = 0;
    value = strtol(text, &end, 0);
    if ((errno != 0) || (*end != '\0') || (value < min) || (value > max)) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem),
                               "%s=\"%s\" of <%s> is not a number from %d "
                               "to %d",
                               name, text, elem->name, min, max);
    }

    *value_p = (int)value;
    return CUEMU_OK;
}

/* Read link_width; 0 if absent or above CUEMU_PCIE_MAX_WIDTH: Linux reports 255
   for devices without this capability, and 63 for a device asleep (drivers/pci:
   all bits of the field set). */
static cuemu_status_t cuemu_xml_width(const cuemu_xml_t *xml,
                                      const xmlNode *elem, int *width_p)
{
    cuemu_status_t status;

    status = cuemu_xml_int(xml, elem, "link_width", 0, 0, 255, width_p);
    if (*width_p > CUEMU_PCIE_MAX_WIDTH) {
        *width_p = 0;
    }
    return status;
}

/* Read affinity: "000000ff,fff00000", the lowest cores last. */
static cuemu_status_t cuemu_xml_affinity(const cuemu_xml_t *xml,
                                         const xmlNode *elem,
                                         cuemu_xml_cpu_t *cpu)
{
    xmlChar *value = xmlGetProp((xmlNode*)elem, (const xmlChar*)"affinity");
    const char *text = (const char*)value;
    cuemu_status_t status = CUEMU_OK;
    int bit = 0;
    size_t i;

    for (i = (text == NULL) ? 0 : strlen(text); i > 0; --i) {
        if (text[i - 1] == ',') {
            continue;
        }
        if (!isxdigit((unsigned char)text[i - 1]) ||
            (bit == CUEMU_XML_MAX_CORES)) {
            status = cuemu_xml_error(xml, cuemu_xml_line(elem),
                                     "affinity=\"%.40s%s\" of <cpu> is not a "
                                     "mask of at most %d cores", text,
                                     (strlen(text) > 40) ? "..." : "",
                                     CUEMU_XML_MAX_CORES);
            break;
        }
        cpu->cores[bit / 8] |= (uint8_t)(cuemu_xml_hex(text[i - 1]) <<
                                         (bit % 8));
        bit += 4;
    }
    xmlFree(value);
    return status;
}

/* Read an attribute as a number >= 0; -1 if absent. */
static cuemu_status_t cuemu_xml_number(const cuemu_xml_t *xml,
                                       const xmlNode *elem, const char *name,
                                       double *value_p)
{
    char text[CUEMU_XML_TEXT];
    char *end;

    *value_p = -1;
    if (!cuemu_xml_text(elem, name, text, sizeof(text))) {
        return CUEMU_OK;
    }

    *value_p = cuemu_strtod(text, &end);
    if ((end == text) || (*end != '\0') || !(*value_p >= 0) ||
        (*value_p > 1e12)) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem),
                               "%s=\"%s\" of <%s> is not a number >= 0", name,
                               text, elem->name);
    }
    return CUEMU_OK;
}

/* Read link_speed: "16.0 GT/s PCIe", "8 GT/s"; 0 if empty or "Unknown". */
static cuemu_status_t cuemu_xml_speed(const cuemu_xml_t *xml,
                                      const xmlNode *elem, double *gtps_p)
{
    char text[CUEMU_XML_TEXT];
    char *end;

    *gtps_p = 0;
    if (!cuemu_xml_text(elem, "link_speed", text, sizeof(text)) ||
        (text[0] == '\0') || (strncmp(text, "Unknown", 7) == 0)) {
        return CUEMU_OK;
    }

    *gtps_p = cuemu_strtod(text, &end);
    if ((end == text) || !(*gtps_p > 0) || (*gtps_p > 1024) ||
        ((*end != '\0') && (*end != ' '))) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem),
                               "link_speed=\"%s\" of <pci> is not a speed such "
                               "as \"16.0 GT/s PCIe\"", text);
    }
    return CUEMU_OK;
}

static cuemu_status_t cuemu_xml_nvlink(cuemu_xml_t *xml, const xmlNode *elem,
                                       cuemu_xml_gpu_t *gpu)
{
    cuemu_xml_nvlink_t *link = &gpu->nvlinks[gpu->num_nvlinks];
    cuemu_status_t status;

    if (gpu->num_nvlinks == CUEMU_XML_MAX_NVLINKS) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem),
                               "more than %d <nvlink> of a GPU",
                               CUEMU_XML_MAX_NVLINKS);
    }

    link->line = cuemu_xml_line(elem);
    if (!cuemu_xml_text(elem, "target", link->target, sizeof(link->target))) {
        return cuemu_xml_error(xml, link->line, "<nvlink> without a target");
    }

    status = cuemu_xml_int(xml, elem, "count", 1, 1, CUEMU_MAX_NVLINKS,
                           &link->count);
    if (status == CUEMU_OK) {
        status = cuemu_xml_int(xml, elem, "tclass", 0, 0, 0xffffff,
                               &link->tclass);
    }
    gpu->num_nvlinks += (status == CUEMU_OK);
    return status;
}

static cuemu_status_t cuemu_xml_c2c(cuemu_xml_t *xml, const xmlNode *elem,
                                    cuemu_xml_gpu_t *gpu)
{
    cuemu_status_t status;

    status = cuemu_xml_int(xml, elem, "count", 1, 1, CUEMU_MAX_NVLINKS,
                           &gpu->c2c_count);
    if (status == CUEMU_OK) {
        status = cuemu_xml_int(xml, elem, "bw", -1, 1, 1000000, &gpu->c2c_mbps);
    }
    return ((status == CUEMU_OK) && (gpu->c2c_mbps < 0)) ?
           cuemu_xml_error(xml, cuemu_xml_line(elem), "<c2c> without a bw") :
           status;
}

/*
 * Correct the link of a GPU in a virtual machine. NCCL writes the slower of a
 * GPU's link and the port above it, and a virtual machine's port (QEMU's root
 * ports up to 3.1) reports 2.5 GT/s and one lane without being a real link. A
 * link below 1/32 of the GPU generation's rate is such a port's: replace it by
 * the generation's.
 */
static void cuemu_xml_gpu_link(cuemu_xml_pci_t *pci, int sm)
{
    const double gtps = cuemu_gpu_model(sm)->pcie_gtps;

    if ((pci->gtps > 0) && (pci->width > 0) &&
        (pci->gtps * pci->width * 32 < gtps * 16)) {
        pci->gtps  = gtps;
        pci->width = 16;
        cuemu_print(pci->speed, sizeof(pci->speed), "%.1f GT/s PCIe", gtps);
    }
}

static int cuemu_xml_find_pci(const cuemu_xml_t *xml, const char *busid)
{
    int i = 0;

    while ((i < xml->num_pci) && (strcmp(xml->pci[i].busid, busid) != 0)) {
        ++i;
    }
    return i;
}

/*
 * Mark the <pci> of a GPU as taken. A second <gpu> of the same <pci> is a part
 * of a split GPU (MLOPart): it gets a copy of the <pci> with the next free
 * device number. CUDA shows all parts at the same bus id, but the emulator
 * identifies a GPU by its bus id.
 */
static cuemu_status_t cuemu_xml_gpu_place(cuemu_xml_t *xml,
                                          cuemu_xml_gpu_t *gpu)
{
    cuemu_xml_pci_t *pci = &xml->pci[gpu->pci];
    unsigned domain, bus, dev;

    if ((sscanf(pci->busid, "%x:%x:%x", &domain, &bus, &dev) != 3) ||
        (domain > 0xffff)) {
        return cuemu_xml_error(xml, gpu->line, "a GPU with busid=\"%s\": CUDA "
                               "has domains up to ffff", pci->busid);
    }
    if (!pci->has_gpu) {
        pci->has_gpu = 1;
        return CUEMU_OK;
    }
    if (xml->num_pci == CUEMU_XML_MAX_PCI) {
        return cuemu_xml_error(xml, gpu->line, "more than %d <pci>",
                               CUEMU_XML_MAX_PCI);
    }

    xml->pci[xml->num_pci] = *pci;
    pci                    = &xml->pci[xml->num_pci];
    do {
        if (++dev == 32) {
            return cuemu_xml_error(xml, gpu->line, "no number is left for one "
                                   "more GPU of a <pci>%s", "");
        }
        snprintf(pci->busid, sizeof(pci->busid), "%04x:%02x:%02x.0",
                 domain & 0xffff, bus & 0xff, dev & 0xff);
    } while (cuemu_xml_find_pci(xml, pci->busid) < xml->num_pci);
    gpu->pci = xml->num_pci++;
    return CUEMU_OK;
}

static cuemu_status_t cuemu_xml_gpu(cuemu_xml_t *xml, const xmlNode *elem,
                                    int pci)
{
    cuemu_xml_gpu_t *gpu = &xml->gpus[xml->num_gpus];
    cuemu_status_t status;
    const xmlNode *child;
    int i;

    if (xml->num_gpus == CUEMU_MAX_GPUS) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem), "more than %d GPUs",
                               CUEMU_MAX_GPUS);
    }

    gpu->line = cuemu_xml_line(elem);
    gpu->pci  = pci;
    status    = cuemu_xml_int(xml, elem, "dev", xml->num_gpus, 0,
                              CUEMU_MAX_GPUS - 1, &gpu->dev);
    if (status != CUEMU_OK) {
        return status;
    }

    status = cuemu_xml_int(xml, elem, "sm", -1, 30, 200, &gpu->sm);
    if (status != CUEMU_OK) {
        return status;
    } else if (gpu->sm < 0) {
        return cuemu_xml_error(xml, gpu->line, "<gpu dev=\"%d\"> has no sm",
                               gpu->dev);
    }

    status = cuemu_xml_int(xml, elem, "mlopart", 0, -1, 16, &gpu->mlopart);
    if (status != CUEMU_OK) {
        return status;
    }

    for (i = 0; i < xml->num_gpus; ++i) {
        if ((xml->gpus[i].dev == gpu->dev) &&
            (xml->gpus[i].mlopart == gpu->mlopart)) {
            return cuemu_xml_error(xml, gpu->line, "two GPUs with dev=\"%d\"",
                                   gpu->dev);
        }
    }
    status = cuemu_xml_gpu_place(xml, gpu);
    if (status != CUEMU_OK) {
        return status;
    }
    cuemu_xml_gpu_link(&xml->pci[gpu->pci], gpu->sm);

    for (child = elem->children; child != NULL; child = child->next) {
        if (cuemu_xml_is(child, "nvlink")) {
            status = cuemu_xml_nvlink(xml, child, gpu);
        } else if (cuemu_xml_is(child, "c2c")) {
            status = cuemu_xml_c2c(xml, child, gpu);
        }
        if (status != CUEMU_OK) {
            return status;
        }
    }

    ++xml->num_gpus;
    return CUEMU_OK;
}

/* Add the network devices of a <nic>. Skips names that cannot be a file's, and
   repeated names. */
static void cuemu_xml_nic(cuemu_xml_t *xml, const xmlNode *elem, int pci)
{
    cuemu_xml_net_t *net;
    const xmlNode *child;
    size_t length;
    int i;

    for (child = elem->children; (child != NULL) &&
                                 (xml->num_nets < CUEMU_XML_MAX_NETS);
         child = child->next) {
        net = &xml->nets[xml->num_nets];
        if (!cuemu_xml_is(child, "net")) {
            continue;
        }
        cuemu_xml_text(child, "name", net->name, sizeof(net->name));
        length = strspn(net->name, "abcdefghijklmnopqrstuvwxyz"
                        "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.");
        for (i = 0; (i < xml->num_nets) &&
                    (strcmp(xml->nets[i].name, net->name) != 0);
             ++i)
            ;
        if ((length > 0) && (net->name[length] == '\0') &&
            (net->name[0] != '.') && (net->name[0] != '-') &&
            (i == xml->num_nets)) {
            net->pci = pci;
            ++xml->num_nets;
        }
    }
}

static cuemu_status_t cuemu_xml_pci(cuemu_xml_t *xml, const xmlNode *elem,
                                    int cpu, int parent, int depth)
{
    cuemu_xml_pci_t *pci = &xml->pci[xml->num_pci];
    int index            = xml->num_pci;
    cuemu_status_t status;
    const xmlNode *child;
    char text[CUEMU_XML_TEXT];

    if (index == CUEMU_XML_MAX_PCI) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem), "more than %d <pci>",
                               CUEMU_XML_MAX_PCI);
    }
    if (depth > CUEMU_XML_MAX_DEPTH) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem),
                               "<pci> nested deeper than %d",
                               CUEMU_XML_MAX_DEPTH);
    }

    cuemu_xml_text(elem, "busid", text, sizeof(text));
    if (!cuemu_xml_busid(text, pci->busid)) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem),
                               "busid=\"%s\" of <pci> is not a PCI bus id",
                               text);
    }
    if (cuemu_xml_find_pci(xml, pci->busid) < index) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem),
                               "two <pci> with busid=\"%s\"", pci->busid);
    }

    pci->cpu    = cpu;
    pci->parent = parent;
    ++xml->num_pci;

    status = cuemu_xml_speed(xml, elem, &pci->gtps);
    if (status == CUEMU_OK) {
        status = cuemu_xml_width(xml, elem, &pci->width);
    }
    cuemu_xml_text(elem, "link_speed", pci->speed, sizeof(pci->speed));
    memcpy(pci->port_speed, pci->speed, sizeof(pci->speed));
    pci->port_width = pci->width;

    for (child = elem->children; (child != NULL) && (status == CUEMU_OK);
         child = child->next) {
        if (cuemu_xml_is(child, "pci")) {
            status = cuemu_xml_pci(xml, child, cpu, index, depth + 1);
        } else if (cuemu_xml_is(child, "gpu")) {
            status = cuemu_xml_gpu(xml, child, index);
        } else if (cuemu_xml_is(child, "nic")) {
            cuemu_xml_nic(xml, child, index);
        }
    }
    return status;
}

static cuemu_status_t cuemu_xml_cpu(cuemu_xml_t *xml, const xmlNode *elem)
{
    cuemu_xml_cpu_t *cpu = &xml->cpus[xml->num_cpus];
    int index            = xml->num_cpus;
    char host[sizeof(xml->host)];
    cuemu_status_t status;
    const xmlNode *child;

    /* NCCL writes all hosts connected by NVLink (MNNVL) into one file; an
       emulated node is the first of them */
    cuemu_xml_text(elem, "host_hash", host, sizeof(host));
    if (index == 0) {
        memcpy(xml->host, host, sizeof(host));
    } else if (strcmp(xml->host, host) != 0) {
        ++xml->num_others;
        return CUEMU_OK;
    }

    if (index == CUEMU_XML_MAX_CPUS) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem), "more than %d <cpu>",
                               CUEMU_XML_MAX_CPUS);
    }

    ++xml->num_cpus;
    cuemu_xml_text(elem, "arch", cpu->arch, sizeof(cpu->arch));
    status = cuemu_xml_int(xml, elem, "numaid", index, -1, 1 << 20,
                           &cpu->numaid);
    if (status == CUEMU_OK) {
        status = cuemu_xml_affinity(xml, elem, cpu);
    }
    for (child = elem->children; (child != NULL) && (status == CUEMU_OK);
         child = child->next) {
        if (cuemu_xml_is(child, "pci")) {
            status = cuemu_xml_pci(xml, child, index, -1, 1);
        }
    }
    return status;
}

static cuemu_status_t cuemu_xml_setting(cuemu_xml_t *xml, const xmlNode *elem)
{
    cuemu_xml_setting_t *setting = &xml->settings[xml->num_settings];
    char source[CUEMU_XML_TEXT];
    const struct {
        const char *name;
        double     *value;
    } numbers[] = {
        {"gbps", &setting->gbps},           {"us", &setting->us},
        {"launch_us", &setting->launch_us}, {"setup_us", &setting->setup_us},
        {"complete_us", &setting->complete_us},
        {"small_us", &setting->small_us},
        {"memory_mib", &setting->memory_mib},
        {"sm_count", &setting->sm_count},   {"peers", &setting->peers}
    };
    cuemu_status_t status;
    size_t i;

    setting->line = cuemu_xml_line(elem);
    if (xml->num_settings == CUEMU_XML_MAX_SETTINGS) {
        return cuemu_xml_error(xml, cuemu_xml_line(elem),
                               "more than %d <cuemu>", CUEMU_XML_MAX_SETTINGS);
    }

    cuemu_xml_text(elem, "set", setting->set, sizeof(setting->set));
    cuemu_xml_text(elem, "name", setting->name, sizeof(setting->name));
    cuemu_xml_text(elem, "members", setting->members, sizeof(setting->members));
    cuemu_xml_text(elem, "model", setting->model, sizeof(setting->model));
    if (!cuemu_xml_text(elem, "source", source, sizeof(source)) ||
        (source[0] == '\0')) {
        return cuemu_xml_error(xml, setting->line,
                               "<cuemu> without a source: where does the "
                               "figure come from?");
    }

    for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); ++i) {
        status = cuemu_xml_number(xml, elem, numbers[i].name, numbers[i].value);
        if (status != CUEMU_OK) {
            return status;
        }
    }

    ++xml->num_settings;
    return CUEMU_OK;
}

static cuemu_status_t cuemu_xml_system(cuemu_xml_t *xml, const xmlNode *root)
{
    cuemu_status_t status = CUEMU_OK;
    const xmlNode *child;

    if ((root == NULL) || !cuemu_xml_is(root, "system")) {
        return cuemu_xml_error(xml, (root == NULL) ? 1 : cuemu_xml_line(root),
                               "the root element is <%s>, not <system>: this "
                               "is not an NCCL topology file",
                               (root == NULL) ? "" : (const char*)root->name);
    }

    for (child = root->children; (child != NULL) && (status == CUEMU_OK);
         child = child->next) {
        if (cuemu_xml_is(child, "cpu")) {
            status = cuemu_xml_cpu(xml, child);
        } else if (cuemu_xml_is(child, "cuemu")) {
            status = cuemu_xml_setting(xml, child);
        }
    }

    if ((status == CUEMU_OK) && (xml->num_gpus == 0)) {
        return cuemu_xml_error(xml, cuemu_xml_line(root), "there is no GPU: "
                               "no <gpu>, as NCCL_TOPO_DUMP_FILE writes them");
    }
    return status;
}

/* Suppress libxml2's messages on stderr: cuemu_xml_read() reports errors
   itself. */
static void cuemu_xml_silent(void *arg, const char *format, ...)
{
}

cuemu_status_t cuemu_xml_read(cuemu_xml_t *xml)
{
    xmlParserCtxt *parser;
    const xmlError *error;
    struct stat st;
    cuemu_status_t status;
    xmlDoc *doc;
    fenv_t env;

    if (stat(xml->path, &st) != 0) {
        snprintf(xml->errbuf, CUEMU_ERRBUF_SIZE, "%s: %s", xml->path,
                 strerror(errno));
        return CUEMU_ERR_IO;
    }
    if (!S_ISREG(st.st_mode) || (st.st_size > CUEMU_XML_MAX_FILE_SIZE)) {
        snprintf(xml->errbuf, CUEMU_ERRBUF_SIZE,
                 "%s: not a file of at most %ld MiB", xml->path,
                 CUEMU_XML_MAX_FILE_SIZE >> 20);
        return CUEMU_ERR_IO;
    }

    parser = xmlNewParserCtxt();
    if (parser == NULL) {
        snprintf(xml->errbuf, CUEMU_ERRBUF_SIZE, "%s: out of memory",
                 xml->path);
        return CUEMU_ERR_IO;
    }

    if (parser->sax != NULL) {
        parser->sax->error   = cuemu_xml_silent;
        parser->sax->warning = cuemu_xml_silent;
    }
    feholdexcept(&env); /* libxml2 divides 0 by 0 when it starts */
    doc = xmlCtxtReadFile(parser, xml->path, NULL,
                          XML_PARSE_NONET | XML_PARSE_NOERROR |
                          XML_PARSE_NOWARNING);
    fesetenv(&env);
    if (doc == NULL) {
        error  = xmlCtxtGetLastError(parser);
        status = cuemu_xml_error(xml, (error != NULL) ? error->line : 1,
                                 "broken XML: %.*s",
                                 ((error != NULL) && (error->message != NULL)) ?
                                 (int)strcspn(error->message, "\n") : 7,
                                 ((error != NULL) && (error->message != NULL)) ?
                                 error->message : "unknown");
    } else if (doc->intSubset != NULL) {
        status = cuemu_xml_error(xml, 1, "a document type (<!DOCTYPE>): no "
                                 "topology file has one");
        xmlFreeDoc(doc);
    } else {
        status = cuemu_xml_system(xml, xmlDocGetRootElement(doc));
        xmlFreeDoc(doc);
    }

    xmlFreeParserCtxt(parser);
    return status;
}
