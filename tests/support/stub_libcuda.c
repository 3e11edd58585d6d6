/* A libcuda that drives nothing and starts like the real one: each call that NVIDIA's library was
 * seen to make at cuInit is made for real, and one that the system refuses makes it return 304, as
 * there. What it was refused goes to stderr.
 *
 * CUDA_STUB_ROOT   where its device nodes and /proc/driver are; the machine has none
 * CUDA_STUB_READS  one more file it must be able to read, CUDA_STUB_WRITES: to write
 * CUDA_STUB_ENDS   what cuInit comes to: a code, or segv, abort, exit, hang
 * CUDA_STUB_AFTER  the code that every call after cuInit comes to
 * CUDA_STUB_INTEGRATED  set: the device shares the machine's memory
 * CUDA_STUB_NOTES  a file that each call of the library is noted in, with the process that made it
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static void note(const char *call) {
    const char *path = getenv("CUDA_STUB_NOTES");
    if (path == NULL) return;
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return;
    dprintf(fd, "%d %s\n", getpid(), call);
    close(fd);
}

static int refused;

static void complain(const char *what, const char *about) {
    fprintf(stderr, "stub libcuda: %s %s: %s\n", what, about, strerror(errno));
    refused = 1;
}

static void read_file(const char *path) {
    char bytes[4096];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        if (errno != ENOENT) complain("open", path);
        return;
    }
    if (read(fd, bytes, sizeof bytes) < 0 && errno != EISDIR) complain("read", path);
    close(fd);
}

static void list_directory(const char *path) {
    DIR *directory = opendir(path);
    if (directory == NULL) {
        if (errno != ENOENT) complain("opendir", path);
        return;
    }
    while (readdir(directory) != NULL) {
    }
    closedir(directory);
}

static void write_file(const char *path, const char *text) {
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || write(fd, text, strlen(text)) < 0) complain("write", path);
    if (fd >= 0) close(fd);
}

static void below(const char *root, const char *path, void (*touch)(const char *)) {
    char name[4096];
    snprintf(name, sizeof name, "%s%s", root, path);
    touch(name);
}

static void use_node(const char *path) {
    unsigned long answer[8] = {0};
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        complain("open", path);
        return;
    }
    if (ioctl(fd, _IOWR('F', 214, answer), answer) < 0 && (errno == EACCES || errno == EPERM))
        complain("ioctl", path);
    void *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) complain("mmap", path);
    else munmap(mapped, 4096);
    close(fd);
}

/* Threads: two, one started by the other, named from the first and each from itself. */

static volatile long tids[2];
static int leave;

static void *work(void *number) {
    tids[(long)number] = syscall(SYS_gettid);
    while (!__atomic_load_n(&leave, __ATOMIC_ACQUIRE)) usleep(500);
    return NULL;
}

static void *start_another(void *number) {
    pthread_t other;
    if ((errno = pthread_create(&other, NULL, work, (void *)1)) != 0) {
        complain("pthread_create", "from a thread");
        return NULL;
    }
    work(number);
    pthread_join(other, NULL);
    return NULL;
}

static void name_threads(void) {
    char path[64];
    pthread_t thread;
    if ((errno = pthread_create(&thread, NULL, start_another, (void *)0)) != 0) {
        complain("pthread_create", "");
        return;
    }
    for (int tries = 0; (tids[0] == 0 || tids[1] == 0) && tries < 20000; tries++) usleep(500);
    if ((errno = pthread_setname_np(thread, "cuda-EvtHandlr")) != 0)
        complain("pthread_setname_np", "of another thread");
    for (int i = 0; i < 2; i++) {
        snprintf(path, sizeof path, "/proc/self/task/%ld/comm", tids[i]);
        write_file(path, "cuda00001400006");
        snprintf(path, sizeof path, "/proc/%d/task/%ld/comm", getpid(), tids[i]);
        write_file(path, "cuda00001400007");
    }
    __atomic_store_n(&leave, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
}

/* Memory and descriptors. */

static void reserve_addresses(void) {
    size_t size = (size_t)256 << 30;
    char *base = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        complain("mmap", "256 GiB of addresses");
        return;
    }
    if (mmap(base + 4096, 1 << 21, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
             -1, 0) == MAP_FAILED || madvise(base + 4096, 1 << 21, MADV_DONTFORK) < 0)
        complain("mmap", "inside the reservation");
    munmap(base, size);
}

static void share_memory(void) {
    int fd = (int)syscall(SYS_memfd_create, "cuda-stub", 1u);
    if (fd < 0 || ftruncate(fd, 1 << 16) < 0) {
        complain("memfd_create", "");
        return;
    }
    void *mapped = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (mapped == MAP_FAILED) complain("mmap", "a memfd");
    else munmap(mapped, 1 << 16);
    close(fd);
}

static void talk_to_itself(void) {
    int ends[2];
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int length = snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "cuda-uvmfd-%d-%d",
                          getpid(), getppid());
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address,
                       (socklen_t)(sizeof address.sun_family + 1 + length)) < 0
        || listen(fd, 16) < 0)
        complain("bind", "@cuda-uvmfd");
    if (fd >= 0) close(fd);
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0) complain("socketpair", "");
    else close(ends[0]), close(ends[1]);
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) complain("pipe2", "");
    else close(ends[0]), close(ends[1]);
    int event = eventfd(0, EFD_CLOEXEC);
    struct pollfd waiting = {.fd = event, .events = POLLOUT};
    if (event < 0 || poll(&waiting, 1, 0) < 0) complain("eventfd", "");
    if (event >= 0) close(event);
}

static void look_at_the_machine(const char *root) {
    cpu_set_t cpus;
    int policy;
    unsigned long nodes[16];
    if (sched_getaffinity(0, sizeof cpus, &cpus) < 0) complain("sched_getaffinity", "");
    if (syscall(SYS_get_mempolicy, &policy, nodes, 1024ul, NULL, 0ul) < 0 && errno != ENOSYS
        && errno != EINVAL)
        complain("get_mempolicy", "");
    const char *files[] = {"/proc/cpuinfo", "/proc/meminfo", "/proc/devices", "/proc/modules",
                           "/proc/self/maps", "/proc/self/status", "/proc/sys/vm/mmap_min_addr",
                           "/sys/devices/system/memory/block_size_bytes",
                           "/sys/devices/system/cpu/online"};
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) read_file(files[i]);
    list_directory("/sys/devices/system/node");
    list_directory("/proc/self/task");
    below(root, "/proc/driver/nvidia/params", read_file);
    below(root, "/proc/driver/nvidia/capabilities", list_directory);
    below(root, "/proc/driver/nvidia-uvm", list_directory);
    below(root, "/dev/nvidiactl", use_node);
    below(root, "/dev/nvidia-uvm", use_node);
    below(root, "/dev/nvidia-uvm-tools", use_node);
    below(root, "/dev/nvidia0", use_node);
    below(root, "/dev/nvidia-caps/nvidia-cap1", use_node);
}

static int end_as_told(const char *how) {
    if (strcmp(how, "segv") == 0) *(volatile int *)NULL = 1;
    if (strcmp(how, "abort") == 0) abort();
    if (strcmp(how, "exit") == 0) _exit(0);
    if (strcmp(how, "hang") == 0) sleep(60);
    return atoi(how);
}

static int started;

int cuCtxGetCurrent(void **context) {
    *context = NULL;
    return started ? 0 : 3;
}

int cuInit(unsigned flags) {
    started = 1;
    const char *root = getenv("CUDA_STUB_ROOT"), *more;
    note("cuInit");
    refused = flags != 0;
    look_at_the_machine(root);
    name_threads();
    reserve_addresses();
    share_memory();
    talk_to_itself();
    if ((more = getenv("CUDA_STUB_READS")) != NULL) read_file(more);
    if ((more = getenv("CUDA_STUB_WRITES")) != NULL) write_file(more, "x");
    if ((more = getenv("CUDA_STUB_ENDS")) != NULL) return end_as_told(more);
    return refused ? 304 : 0;
}

static int after(void) {
    const char *code = getenv("CUDA_STUB_AFTER");
    return code == NULL ? 0 : atoi(code);
}

int cuDeviceGetCount(int *count) {
    note("cuDeviceGetCount");
    *count = 1;
    return after();
}

int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ordinal == 0 ? after() : 101;
}

int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = attribute == 18 && device == 0 && getenv("CUDA_STUB_INTEGRATED") != NULL;
    return 0;
}

/* What the runtime library and Triton ask before anything else. */

int cuDriverGetVersion(int *version) {
    note("cuDriverGetVersion");
    *version = 13000;
    return 0;
}

int cuGetProcAddress_v2(const char *name, void **found, int version, unsigned long flags,
                        void *status) {
    (void)name, (void)version, (void)flags, (void)status;
    note("cuGetProcAddress_v2");
    *found = NULL;
    return 500;
}
