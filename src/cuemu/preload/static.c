/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Redirect programs and libraries that contain NVIDIA's CUDA runtime: linked
 * statically (nvcc's default, and PyPI's CuPy), or opened as libcudart.so by
 * its path. This runtime needs private tables of its driver. Its public
 * functions are in the file's symbol table, unless stripped. This file replaces
 * the beginning of each by a jump to the same function of the emulated runtime,
 * before any code of the object runs. NVIDIA's nvJitLink, which makes machine
 * code, is redirected in the same way.
 *
 * The dynamic linker calls a function for debuggers (r_brk of <link.h>) after
 * it has mapped objects and before it relocates them. This file replaces its
 * beginning by a jump to its own code.
 */
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifdef __x86_64__

#define STATIC_NOT_SUPPORTED 801 /* cudaErrorNotSupported */
#define STATIC_PAGE          4096ul

/* movabs $slot, %r11; jmp *(%r11) */
#define STATIC_ENTRY_SIZE    13
/* movabs $function, %rax; jmp *%rax */
#define STATIC_BREAK_SIZE    12

/* Target of a redirected function */
typedef struct {
    void       *target; /* cuemu_static_bind() until the first call */
    const char *name;
    const char *library; /* in this library's folder */
} static_slot_t;

/* A library of NVIDIA's to redirect, identified by two of its functions and by
   presence (has_third) or absence of a third one */
typedef struct {
    const char *prefix, *prefix2; /* prefixes of its functions' names; a capital
                                     follows */
    const char *one, *two, *third;
    int         has_third;
    const char *library;          /* its replacement */
} static_family_t;

static const static_family_t static_families[] = {
    {"cuda", "__cuda", "__cudaGetKernel", "cudaGetExportTable",
     "cudaGetDeviceProperties_v2", 1, "libcudart.so.12"},
    {"cuda", "__cuda", "__cudaGetKernel", "cudaGetExportTable",
     "cudaGetDeviceProperties_v2", 0, "libcudart.so.13"},
    {"nvJitLink", "nvJitLink", "nvJitLinkCreate", "nvJitLinkAddData",
     "nvJitLinkVersion", 1, "libcuda.so.1"}
};

/* Names in the emulated libraries, which are not redirected */
static const char *const static_ours[] = {"__cudaEmulated", "cuemu_census"};

/* A file mapped for reading */
typedef struct {
    const char *begin;
    size_t      size;
} static_file_t;

void cuemu_static_bind(void);
void *cuemu_static_find(static_slot_t *slot);


/* Resolve a function on its first call, with its slot in r11. Keeps all
   registers that may contain arguments. */
__asm__(".text\n"
        ".hidden cuemu_static_bind\n"
        ".globl cuemu_static_bind\n"
        ".type cuemu_static_bind, @function\n"
        "cuemu_static_bind:\n"
        "    pushq %rbp\n"
        "    movq %rsp, %rbp\n"
        "    pushq %rdi\n"
        "    pushq %rsi\n"
        "    pushq %rdx\n"
        "    pushq %rcx\n"
        "    pushq %r8\n"
        "    pushq %r9\n"
        "    pushq %rax\n"
        "    subq $136, %rsp\n"
        "    movups %xmm0, (%rsp)\n"
        "    movups %xmm1, 16(%rsp)\n"
        "    movups %xmm2, 32(%rsp)\n"
        "    movups %xmm3, 48(%rsp)\n"
        "    movups %xmm4, 64(%rsp)\n"
        "    movups %xmm5, 80(%rsp)\n"
        "    movups %xmm6, 96(%rsp)\n"
        "    movups %xmm7, 112(%rsp)\n"
        "    movq %r11, %rdi\n"
        "    call cuemu_static_find\n"
        "    movq %rax, %r11\n"
        "    movups (%rsp), %xmm0\n"
        "    movups 16(%rsp), %xmm1\n"
        "    movups 32(%rsp), %xmm2\n"
        "    movups 48(%rsp), %xmm3\n"
        "    movups 64(%rsp), %xmm4\n"
        "    movups 80(%rsp), %xmm5\n"
        "    movups 96(%rsp), %xmm6\n"
        "    movups 112(%rsp), %xmm7\n"
        "    addq $136, %rsp\n"
        "    popq %rax\n"
        "    popq %r9\n"
        "    popq %r8\n"
        "    popq %rcx\n"
        "    popq %rdx\n"
        "    popq %rsi\n"
        "    popq %rdi\n"
        "    popq %rbp\n"
        "    jmp *%r11\n"
        ".size cuemu_static_bind, . - cuemu_static_bind\n");

static int static_lacks(void)
{
    return STATIC_NOT_SUPPORTED;
}

/* Store in the slot, and return, the emulated function of that name, from
   slot->library beside this library. If there is none, print so and return a
   function that returns STATIC_NOT_SUPPORTED. */
void *cuemu_static_find(static_slot_t *slot)
{
    void *library = NULL, *found = NULL;
    char path[4096];
    Dl_info info;
    char *slash;

    if ((dladdr((void*)static_lacks, &info) != 0) &&
        ((slash = strrchr(info.dli_fname, '/')) != NULL)) {
        snprintf(path, sizeof(path), "%.*s/%s",
                 (int)(slash - info.dli_fname), info.dli_fname, slot->library);
        library = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }

    if (library == NULL) {
        fprintf(stderr, "cuemu: %s is called, and the emulated %s cannot be "
                        "opened: %s\n", slot->name, slot->library, dlerror());
    } else {
        found = dlsym(library, slot->name);
        if (found == NULL) {
            fprintf(stderr, "cuemu: the emulated runtime has no %s; it returns "
                            "cudaErrorNotSupported\n", slot->name);
        }
    }

    found = (found == NULL) ? (void*)static_lacks : found;
    __atomic_store_n(&slot->target, found, __ATOMIC_RELEASE);
    return found;
}

/* Overwrite code, and leave its pages read-only and executable. Return 0, or -1
   with the code unchanged. */
static int static_write(void *code, const void *bytes, size_t size)
{
    uintptr_t begin = (uintptr_t)code & ~(STATIC_PAGE - 1);
    size_t length   = (uintptr_t)code + size - begin;

    if (mprotect((void*)begin, length, PROT_READ | PROT_WRITE | PROT_EXEC) !=
        0) {
        return -1;
    }

    memcpy(code, bytes, size);
    (void)mprotect((void*)begin, length, PROT_READ | PROT_EXEC);
    return 0;
}

/* ------------------------------------------------------------- objects */

static int static_map(const char *path, static_file_t *file)
{
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    void *memory;

    if (fd < 0) {
        return -1;
    }

    memory = ((syscall(SYS_fstat, fd, &st) != 0) ||
              ((size_t)st.st_size < sizeof(Elf64_Ehdr))) ? MAP_FAILED :
             mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    syscall(SYS_close, fd);
    if (memory == MAP_FAILED) {
        return -1;
    }

    file->begin = memory;
    file->size  = (size_t)st.st_size;
    return 0;
}

/* Return a piece of the file, NULL if the file ends before. */
static const void *static_piece(const static_file_t *file, uint64_t offset,
                                uint64_t size)
{
    return ((offset > file->size) || (size > file->size - offset)) ? NULL :
           (file->begin + offset);
}

/* Return non-zero if a string table contains `name`, or a name that ends with
   it. */
static int static_has(const char *names, size_t size, const char *name)
{
    return memmem(names, size, name, strlen(name) + 1) != NULL;
}

static int static_begins(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);

    return (strncmp(name, prefix, length) == 0) && (name[length] >= 'A') &&
           (name[length] <= 'Z');
}

static int static_is_public(const Elf64_Sym *symbol, const char *name,
                            const static_family_t *family)
{
    return (ELF64_ST_TYPE(symbol->st_info) == STT_FUNC) &&
           (symbol->st_shndx != SHN_UNDEF) &&
           ((symbol->st_value & 15) == 0) &&
           (static_begins(name, family->prefix) ||
            static_begins(name, family->prefix2));
}

static void static_redirect(uintptr_t base, const Elf64_Sym *symbols,
                            size_t count, const char *names, size_t size,
                            const static_family_t *family)
{
    uint8_t entry[STATIC_ENTRY_SIZE] = {0x49, 0xbb, 0, 0, 0, 0, 0, 0, 0, 0,
                                        0x41, 0xff, 0x23};
    static_slot_t *slots = calloc(count, sizeof(*slots)), *slot = slots;
    const char *name;
    size_t i;

    for (i = 0; (i < count) && (slots != NULL); ++i) {
        name = names + symbols[i].st_name;
        if ((symbols[i].st_name >= size) ||
            !static_is_public(&symbols[i], name, family)) {
            continue;
        }
        slot->target  = (void*)cuemu_static_bind;
        slot->name    = strdup(name);
        slot->library = family->library;
        memcpy(entry + 2, &slot, sizeof(slot));
        if ((slot->name == NULL) ||
            (static_write((void*)(base + symbols[i].st_value), entry,
                          sizeof(entry)) != 0)) {
            return; /* the driver reports such a program */
        }
        ++slot;
    }
}

static void static_table(uintptr_t base, const static_file_t *file,
                         const Elf64_Shdr *table, const Elf64_Shdr *strings)
{
    const char *names        = static_piece(file, strings->sh_offset,
                                            strings->sh_size);
    const Elf64_Sym *symbols = static_piece(file, table->sh_offset,
                                            table->sh_size);
    size_t size              = strings->sh_size, i;
    const static_family_t *family;

    if ((names == NULL) || (symbols == NULL) || (size == 0) ||
        (names[size - 1] != '\0')) {
        return;
    }

    for (i = 0; i < sizeof(static_families) / sizeof(*static_families); ++i) {
        family = &static_families[i];
        if (static_has(names, size, family->one) &&
            static_has(names, size, family->two) &&
            (static_has(names, size, family->third) == family->has_third) &&
            !static_has(names, size, static_ours[0]) &&
            !static_has(names, size, static_ours[1])) {
            static_redirect(base, symbols, table->sh_size / sizeof(*symbols),
                            names, size, family);
        }
    }
}

static void static_object(uintptr_t base, const char *path)
{
    const Elf64_Ehdr *header;
    const Elf64_Shdr *sections;
    static_file_t file;
    unsigned i;

    if (static_map(path, &file) != 0) {
        return;
    }

    header   = (const Elf64_Ehdr*)(const void*)file.begin;
    sections = (memcmp(header->e_ident, ELFMAG "\2", 5) != 0) ||
               (header->e_shentsize != sizeof(*sections)) ? NULL :
               static_piece(&file, header->e_shoff,
                            header->e_shnum * sizeof(*sections));
    for (i = 0; (sections != NULL) && (i < header->e_shnum); ++i) {
        if (((sections[i].sh_type == SHT_SYMTAB) ||
             (sections[i].sh_type == SHT_DYNSYM)) &&
            (sections[i].sh_link < header->e_shnum)) {
            static_table(base, &file, &sections[i],
                         &sections[sections[i].sh_link]);
        }
    }
    munmap((void*)(uintptr_t)file.begin, file.size);
}

/* ------------------------------------------------------ dynamic linker */

/* Redirect the functions of the objects loaded since the last call: they are at
   the end of the linker's list. The first call handles all objects. Does
   nothing while the linker changes the list. */
static void static_scan(void)
{
    static const struct link_map *seen;
    const struct link_map *map, *last = NULL;
    int is_new = (seen == NULL);

    if (_r_debug.r_state != RT_CONSISTENT) {
        return;
    }

    for (map = _r_debug.r_map; map != NULL; map = map->l_next) {
        if (is_new) {
            static_object(map->l_addr, (map->l_name[0] == '\0') ?
                                       ((map == _r_debug.r_map) ?
                                        "/proc/self/exe" : "") : map->l_name);
        }
        is_new = is_new || (map == seen);
        last   = map;
    }
    seen = last;
}

/* Return non-zero for an empty function with room for a jump: "ret", optionally
   with "endbr64" before it, and padding behind it. */
static int static_is_empty(const uint8_t *code)
{
    static const uint8_t fillers[] = {0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x40, 0x44,
                                      0x80, 0x90, 0xcc, 0x00};
    unsigned i = (memcmp(code, "\xf3\x0f\x1e\xfa", 4) == 0) ? 4 : 0;

    if (code[i] != 0xc3) {
        return 0;
    }
    while ((++i < STATIC_BREAK_SIZE) &&
           (memchr(fillers, code[i], sizeof(fillers)) != NULL)) {
    }
    return i == STATIC_BREAK_SIZE;
}

static void __attribute__((constructor)) static_init(void)
{
    uint8_t code[STATIC_BREAK_SIZE] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0,
                                       0xff, 0xe0};
    void (*scan)(void) = static_scan;
    void *stop         = (void*)_r_debug.r_brk;

    static_scan();
    memcpy(code + 2, &scan, sizeof(scan));
    if ((stop != NULL) && static_is_empty(stop)) {
        (void)static_write(stop, code, sizeof(code));
    }
}

#endif
