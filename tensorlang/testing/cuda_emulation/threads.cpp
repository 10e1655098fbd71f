// Blocks one after the other, each thread of a block a fiber. Threads run until they wait; which one goes on is drawn.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <vector>

#include "machine.h"

namespace emu {

Place* current;
dim3 block_size, grid_size;
Machine machine;

namespace {

constexpr size_t STACK = 65536, STACK_FENCE = 4096, SLOT = STACK + STACK_FENCE;
constexpr unsigned BARRIERS = 16;

struct Barrier {
  unsigned wanted = 0, arrived = 0;
  int line = 0;
};

struct Gathering {
  const char* what;
  unsigned lanes, arrived;
  void* operands[32];
};

ucontext_t launcher;
sigjmp_buf faulted;
volatile sig_atomic_t in_kernel;
char message[4096];
bool failed;
unsigned char* stacks;
std::vector<ucontext_t> contexts;
std::vector<uint32_t> ready;       // lanes of each warp that may go on
std::vector<unsigned> warp_order;  // the first that has one does
std::vector<std::vector<Gathering>> gatherings;
Barrier barriers[BARRIERS];
unsigned finished;
uint64_t state;
Body body;
const Value* arguments;

uint64_t next_random() {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state * 0x2545f4914f6cdd1dull;
}

}  // namespace

unsigned draw(unsigned below) { return unsigned((next_random() >> 32) * below >> 32); }

namespace {

// Some warps run far ahead of the others, and from time to time other ones do.
int choose() {
  if (draw(64) == 0) {
    unsigned a = draw(warp_order.size()), b = draw(warp_order.size()), w = warp_order[a];
    warp_order[a] = warp_order[b], warp_order[b] = w;
  }
  for (unsigned w : warp_order) {
    if (uint32_t lanes = ready[w]) {
      for (unsigned skip = draw(__builtin_popcount(lanes)); skip; --skip) lanes &= lanes - 1;
      return w * 32 + __builtin_ctz(lanes);
    }
  }
  return -1;
}

int choose_or_complete() {
  int next = choose();
  while (next < 0 && finished < machine.threads.size() && complete_one()) next = choose();
  return next;
}

void describe_deadlock() {
  int length = snprintf(message, sizeof message, "block (%u, %u, %u) cannot go on", machine.block.x, machine.block.y,
                        machine.block.z);
  std::vector<bool> told(machine.threads.size());
  for (size_t i = 0; i < machine.threads.size(); ++i) {
    const Thread& a = machine.threads[i];
    if (told[i]) continue;
    unsigned count = 0;
    for (size_t j = i; j < machine.threads.size(); ++j) {
      const Thread& b = machine.threads[j];
      if (strcmp(a.waits, b.waits) == 0 && a.line == b.line && a.address == b.address) told[j] = true, ++count;
    }
    if (length > int(sizeof message) - 256) break;
    length += snprintf(message + length, sizeof message - length, "%s %u threads %s%s", told[0] && i ? "," : ":", count,
                       a.done ? "" : "wait at ", a.done ? "have returned" : a.waits);
    if (a.line) length += snprintf(message + length, sizeof message - length, " in line %d", a.line);
    if (a.address >= 0)
      length += snprintf(message + length, sizeof message - length, " of the barrier at shared address %d", a.address);
    length += snprintf(message + length, sizeof message - length, " (the first is thread (%u, %u, %u))", a.thread.x,
                       a.thread.y, a.thread.z);
  }
}

void go_on(int next) {
  Place* from = current;
  current = &machine.threads[next];
  if (from != current) swapcontext(&contexts[from->rank], &contexts[next]);
}

void suspend(const char* what, int line, int address) {
  Thread& self = me();
  self.waits = what, self.line = line, self.address = address;
  ready[self.rank / 32] &= ~(1u << self.rank % 32);
  int next = choose_or_complete();
  if (next < 0) {
    describe_deadlock();
    failed = true;
    setcontext(&launcher);
  }
  go_on(next);
}

void entry() {
  body(arguments);
  Thread& self = me();
  self.done = true, self.waits = "", self.line = 0, self.address = -1;
  ready[self.rank / 32] &= ~(1u << self.rank % 32);
  ++finished;
  int next = choose_or_complete();
  if (next < 0 && finished < machine.threads.size()) describe_deadlock(), failed = true;
  if (next < 0) setcontext(&launcher);
  current = &machine.threads[next];
  setcontext(&contexts[next]);
}

// Given back after each launch: a fence makes two mappings of one, of which a process has 65,530 on Linux, and each
// kernel that is loaded has stacks of its own.
bool make_stacks(size_t count) {
  stacks = static_cast<unsigned char*>(
      mmap(nullptr, count * SLOT, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (stacks == MAP_FAILED) return false;
  for (size_t i = 0; i < count; ++i)
    if (mprotect(stacks + i * SLOT, STACK_FENCE, PROT_NONE)) return munmap(stacks, count * SLOT), false;
  return true;
}

void begin_block(uint3 at) {
  size_t count = machine.threads.size(), warps = (count + 31) / 32;
  machine.block = at;
  ready.assign(warps, 0);
  gatherings.assign(warps, {});
  warp_order.resize(warps);
  for (size_t w = 0; w < warps; ++w) warp_order[w] = w;
  for (size_t w = warps; w > 1; --w) {
    unsigned other = draw(w), held = warp_order[w - 1];
    warp_order[w - 1] = warp_order[other], warp_order[other] = held;
  }
  for (Barrier& b : barriers) b = {};
  finished = 0;
  for (size_t i = 0; i < count; ++i) {
    unsigned x = i % block_size.x, y = i / block_size.x % block_size.y, z = i / block_size.x / block_size.y;
    machine.threads[i] = Thread{};
    Thread& t = machine.threads[i];
    t.thread = {x, y, z}, t.block = at, t.rank = i;
    getcontext(&contexts[i]);
    contexts[i].uc_stack = {stacks + i * SLOT + STACK_FENCE, 0, STACK};
    contexts[i].uc_link = nullptr;
    makecontext(&contexts[i], entry, 0);
    ready[i / 32] |= 1u << i % 32;
  }
  begin_block_memory();
}

void on_fault(int signal, siginfo_t* info, void*) {
  if (!in_kernel) abort();
  describe_fault(signal, info->si_addr, message, sizeof message);
  siglongjmp(faulted, 1);
}

void run_blocks() {
  size_t count = size_t(grid_size.x) * grid_size.y * grid_size.z;
  std::vector<size_t> order(count);
  for (size_t i = 0; i < count; ++i) order[i] = i;
  for (size_t i = count; i > 1; --i) std::swap(order[i - 1], order[draw(i)]);
  for (size_t i : order) {
    begin_block({unsigned(i % grid_size.x), unsigned(i / grid_size.x % grid_size.y),
                 unsigned(i / grid_size.x / grid_size.y)});
    int first = choose();
    current = &machine.threads[first];
    swapcontext(&launcher, &contexts[first]);
    if (failed) return;
    finish_block();
  }
}

void run_guarded() {
  static unsigned char signal_stack[65536];
  stack_t alternate{}, stack_before;
  alternate.ss_sp = signal_stack, alternate.ss_size = sizeof signal_stack;
  sigaltstack(&alternate, &stack_before);
  const int signals[] = {SIGSEGV, SIGBUS, SIGFPE};
  struct sigaction action{}, before[3];
  action.sa_sigaction = on_fault, action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  for (int i = 0; i < 3; ++i) sigaction(signals[i], &action, &before[i]);
  if (sigsetjmp(faulted, 1) == 0) {
    in_kernel = 1;
    run_blocks();
  } else {
    failed = true;
  }
  in_kernel = 0;
  for (int i = 0; i < 3; ++i) sigaction(signals[i], &before[i], nullptr);
  sigaltstack(&stack_before, nullptr);
}

}  // namespace

void fail(const char* format, ...) {
  va_list list;
  va_start(list, format);
  int length = vsnprintf(message, sizeof message, format, list);
  va_end(list);
  if (current && in_kernel)
    snprintf(message + length, sizeof message - length, "; thread (%u, %u, %u) of block (%u, %u, %u)",
             current->thread.x, current->thread.y, current->thread.z, current->block.x, current->block.y,
             current->block.z);
  failed = true;
  setcontext(&launcher);
  abort();
}

void wait_here(const char* what, int line, int address) { suspend(what, line, address); }

void wake(Thread& thread) { ready[thread.rank / 32] |= 1u << thread.rank % 32; }

void yield() {
  int next = choose();
  go_on(next);
}

unsigned warp_lanes() {
  unsigned rest = machine.threads.size() - me().rank / 32 * 32;
  return rest >= 32 ? ~0u : (1u << rest) - 1;
}

void block_barrier(int id, unsigned count, int line, bool waits) {
  if (id < 0 || unsigned(id) >= BARRIERS) fail("barrier %d; a block has barriers 0 to 15", id);
  Barrier& b = barriers[id];
  unsigned wanted = count ? count : machine.threads.size();
  if (b.arrived && b.wanted != wanted)
    fail("threads wait at barrier %d for %u and for %u threads", id, b.wanted, wanted);
  if (b.arrived && b.line != line)
    fail("threads of a block wait at different barriers, in line %d and in line %d", b.line, line);
  b.wanted = wanted, b.line = line;
  if (++b.arrived == wanted) {
    b.arrived = 0;
    for (Thread& t : machine.threads)
      if (t.barrier == id) t.barrier = -1, wake(t);
  } else if (waits) {
    me().barrier = id;
    wait_here(line ? "__syncthreads()" : "bar.sync", line, -1);
  }
}

void warp_together(const char* what, unsigned lanes, void* operand, Together compute) {
  Thread& self = me();
  unsigned lane = self.rank % 32, bit = 1u << lane;
  lanes &= warp_lanes();
  if (!(lanes & bit)) fail("%s with a mask of lanes (0x%08x) that lacks the lane itself", what, lanes);
  std::vector<Gathering>& open = gatherings[self.rank / 32];
  size_t at = 0;
  for (; at < open.size(); ++at) {
    if (!(open[at].lanes & lanes)) continue;
    if (open[at].lanes == lanes && strcmp(open[at].what, what) == 0) break;
    fail("lanes of a warp are at different instructions: %s (mask 0x%08x) and %s (mask 0x%08x)", open[at].what,
         open[at].lanes, what, lanes);
  }
  if (at == open.size()) open.push_back({what, lanes, 0, {}});
  open[at].operands[lane] = operand;
  open[at].arrived |= bit;
  if (open[at].arrived != lanes) return wait_here(what, 0, -1);
  Gathering all = open[at];
  open.erase(open.begin() + at);
  compute(all.operands, lanes);
  ready[self.rank / 32] |= lanes;
}

const char* launch(const Settings& settings, Array* arrays, int array_count, Value* values, int value_count, Body run) {
  grid_size = settings.grid, block_size = settings.block;
  state = settings.seed * 0x9e3779b97f4a7c15ull + 0x1234567;
  for (int i = 0; i < 8; ++i) next_random();
  failed = false, message[0] = 0, current = nullptr;
  body = run, arguments = values;
  machine.late = settings.late;
  size_t count = size_t(block_size.x) * block_size.y * block_size.z;
  machine.threads.assign(count, {});
  contexts.assign(count, {});
  if (const char* refused = place_memory(settings, arrays, array_count, values, value_count))
    return release_memory(false), refused;
  if (!make_stacks(count)) return release_memory(false), "not enough memory for the stacks of the threads";
  run_guarded();
  munmap(stacks, count * SLOT);
  machine.bulk.clear();
  const char* broken = release_memory(!failed);
  return failed ? message : broken;
}

}  // namespace emu
