// Matrix instructions of a warp and of a group of four warps, from the layouts of the PTX ISA.
#include <math.h>
#include <string.h>

#include <memory>
#include <vector>

#include "machine.h"

namespace emu {

namespace {

constexpr uint32_t IN_FLIGHT = 0xffffffff;

int per_register(Kind kind) {
  return kind == F16 || kind == BF16 ? 2 : kind == TF32 || kind == F32 ? 1 : 4;
}

int bits_of(Kind kind) { return 32 / per_register(kind); }

double element(Kind kind, uint32_t word, int at) {
  int bits = bits_of(kind);
  return decode(kind, bits == 32 ? word : word >> bits * at & ((1u << bits) - 1));
}

uint32_t accumulated(Kind kind, double value) {
  return kind == S32 ? uint32_t(int64_t(value)) : uint32_t(encode(kind, value, 'n', false));
}

double held(Kind kind, const uint32_t* registers, int j) {
  if (kind == F16) return element(F16, registers[j / 2], j % 2);
  return decode(kind, registers[j]);
}

void hold(Kind kind, uint32_t* registers, int j, double value) {
  uint32_t bits = accumulated(kind, value);
  if (kind != F16)
    registers[j] = bits;
  else
    registers[j / 2] = (registers[j / 2] & (j % 2 ? 0xffffu : 0xffff0000u)) | bits << 16 * (j % 2);
}

// The element (row, k) of a 16 x K fragment of A, and (k, column) of a K x 8 fragment of B.
double of_a(Kind kind, const uint32_t* const* lanes, int row, int k) {
  int e = per_register(kind), half = k / (4 * e), q = k % (4 * e) / e;
  return element(kind, lanes[row % 8 * 4 + q][row / 8 + 2 * half], k % e);
}

struct Mma {
  const Product* product;
  uint32_t d[4], a[4], b[2], c[4];
};

void multiply(void** operands, unsigned lanes) {
  if (~lanes) fail("mma in a warp of fewer than 32 threads");
  Mma** all = reinterpret_cast<Mma**>(operands);
  const Product& p = *all[0]->product;
  const uint32_t* a_of[32];
  for (int lane = 0; lane < 32; ++lane) {
    if (memcmp(all[lane]->product, &p, sizeof p)) fail("lanes of a warp are at different products");
    a_of[lane] = all[lane]->a;
  }
  double a[16][32], b[32][8];
  for (int i = 0; i < 16; ++i)
    for (int k = 0; k < p.k; ++k) a[i][k] = of_a(p.a, a_of, i, k);
  int e = per_register(p.b);
  for (int k = 0; k < p.k; ++k)
    for (int j = 0; j < 8; ++j) b[k][j] = element(p.b, all[j * 4 + k % (4 * e) / e]->b[k / (4 * e)], k % e);
  for (int lane = 0; lane < 32; ++lane)
    for (int r = 0; r < 4; ++r) {
      int row = lane / 4 + 8 * (r / 2), column = lane % 4 * 2 + r % 2;
      double sum = 0;
      for (int k = 0; k < p.k; ++k) sum += a[row][k] * b[k][column];
      hold(p.d, all[lane]->d, r, sum + held(p.c, all[lane]->c, r));
    }
}

struct Rows {
  int count;
  bool transposed;
  uint64_t address;
  uint32_t* loaded;
  const uint32_t* stored;
};

// Lane l holds of each matrix the elements 2 (l % 4) and the next of row l / 4; of column l / 4 when transposed.
void move_rows(void** operands, unsigned lanes) {
  if (~lanes) fail("ldmatrix or stmatrix in a warp of fewer than 32 threads");
  Rows** all = reinterpret_cast<Rows**>(operands);
  const Rows& first = *all[0];
  for (int matrix = 0; matrix < first.count; ++matrix) {
    unsigned char* rows[8];
    for (int r = 0; r < 8; ++r) rows[r] = shared_pointer(all[matrix * 8 + r]->address, 16, 16, "a row of ldmatrix");
    for (int lane = 0; lane < 32; ++lane)
      for (int half = 0; half < 2; ++half) {
        int row = lane / 4, column = lane % 4 * 2 + half;
        if (first.transposed) row = column, column = lane / 4;
        uint16_t value;
        if (first.loaded) {
          memcpy(&value, rows[row] + 2 * column, 2);
          uint32_t& to = all[lane]->loaded[matrix];
          to = half ? (to & 0xffff) | uint32_t(value) << 16 : value;
        } else {
          value = all[lane]->stored[matrix] >> 16 * half;
          memcpy(rows[row] + 2 * column, &value, 2);
        }
      }
  }
}

// The accumulators of 128 threads while products of theirs are under way; the registers themselves hold garbage then.
struct Accumulators {
  int registers, users;
  std::vector<uint32_t*> where;
  std::vector<uint32_t> value;
};

struct Pending {
  GroupProduct product;
  std::shared_ptr<Accumulators> to;
  std::vector<uint32_t> a_registers;
  unsigned group;
};

struct Warpgroup {
  std::vector<void*> operands = std::vector<void*>(128);
  unsigned arrived = 0, closed = 0;
  const char* what = "";
  bool fenced = false;
  std::vector<Pending> pending;
};
std::vector<Warpgroup> warpgroups;

struct Issue {
  const GroupProduct* product;
  uint32_t* const* d;
  unsigned pending;
};

unsigned char* tile_byte(uint64_t address, unsigned mode) {
  unsigned mask = (1u << mode) - 1;
  address ^= (address >> 7 & mask) << 4;
  return shared_pointer(address, 1, 1, "a tile of wgmma");
}

// An element of a tile in shared memory: `line` along m or n, `at` along k. `turned`: neighbours along m or n.
double of_tile(uint64_t descriptor, Kind kind, bool turned, int line, int at) {
  uint64_t start = (descriptor & 0x3fff) << 4, leading = (descriptor >> 16 & 0x3fff) << 4;
  uint64_t stride = (descriptor >> 32 & 0x3fff) << 4;
  unsigned mode = (4 - (descriptor >> 62)) % 4;  // 1: 32 bytes, 2: 64, 3: 128
  if (descriptor >> 49 & 7) fail("a wgmma descriptor with a base offset, which the emulation does not know");
  int bytes = bits_of(kind) / 8;
  uint64_t span = mode ? 16u << mode : 16, address = start;
  if (turned) {
    uint64_t along = uint64_t(line) * bytes;
    uint64_t next_atom = mode ? leading : stride, next_rows = mode ? stride : leading;
    address += along % span + along / span * next_atom + at % 8 * span + at / 8 * next_rows;
  } else {
    uint64_t along = uint64_t(at) * bytes;
    address += mode ? along : along / 16 * leading + along % 16;
    address += line % 8 * span + line / 8 * stride;
  }
  uint64_t word = 0;
  memcpy(&word, tile_byte(address, mode), bytes);
  return decode(kind, word);
}

void check_tile(uint64_t descriptor, const char* name) {
  unsigned mode = (4 - (descriptor >> 62)) % 4;
  uint64_t start = (descriptor & 0x3fff) << 4, stride = (descriptor >> 32 & 0x3fff) << 4;
  if (mode && stride % (128u << mode))
    fail("the stride of the tile of %s is %lu bytes, not a multiple of %u", name, stride, 128u << mode);
  if (start < 1024) fail("the tile of %s lies at shared address %lu, in front of shared memory", name, start);
}

void execute(const Pending& op) {
  const GroupProduct& p = op.product;
  std::vector<double> a(64 * p.k), b(p.n * p.k);
  for (int i = 0; i < 64; ++i)
    for (int k = 0; k < p.k; ++k) {
      double value;
      if (p.a_in_registers) {
        const uint32_t* lanes[32];
        for (int lane = 0; lane < 32; ++lane) lanes[lane] = &op.a_registers[(i / 16 * 32 + lane) * 4];
        value = of_a(p.a, lanes, i % 16, k);
      } else {
        value = of_tile(p.a_tile, p.a, p.a_along_m, i, k);
      }
      a[i * p.k + k] = p.negates_a ? -value : value;
    }
  for (int j = 0; j < p.n; ++j)
    for (int k = 0; k < p.k; ++k) {
      double value = of_tile(p.b_tile, p.b, p.b_along_n, j, k);
      b[j * p.k + k] = p.negates_b ? -value : value;
    }
  for (int thread = 0; thread < 128; ++thread) {
    uint32_t* own = &op.to->value[thread * op.to->registers];
    for (int j = 0; j < p.n / 2; ++j) {
      int row = thread / 32 * 16 + thread % 32 / 4 + 8 * (j / 2 % 2), column = j / 4 * 8 + thread % 4 * 2 + j % 2;
      double sum = 0;
      for (int k = 0; k < p.k; ++k) sum += a[row * p.k + k] * b[column * p.k + k];
      hold(p.d, own, j, p.accumulates ? sum + held(p.d, own, j) : sum);
    }
  }
}

void finish(Pending& op) {
  Accumulators& to = *op.to;
  for (uint32_t* where : to.where)
    if (*where != IN_FLIGHT) fail("an accumulator of wgmma was written between the product and the wait for it");
  execute(op);
  if (--to.users == 0)
    for (size_t i = 0; i < to.where.size(); ++i) *to.where[i] = to.value[i];
}

void issue(Warpgroup& group, Issue** all) {
  const GroupProduct& p = *all[0]->product;
  int registers = p.d == F16 ? p.n / 4 : p.n / 2;
  for (int t = 0; t < 128; ++t)
    if (all[t]->product->a_tile != p.a_tile || all[t]->product->b_tile != p.b_tile ||
        all[t]->product->accumulates != p.accumulates || all[t]->product->n != p.n)
      fail("the threads of a warp group issue different products");
  if (!group.fenced) fail("wgmma without a wgmma.fence before it");
  if (!p.a_in_registers) check_tile(p.a_tile, "A");
  check_tile(p.b_tile, "B");
  Pending op{p, nullptr, {}, group.closed};
  for (Pending& other : group.pending)
    if (other.to->where[0] == all[0]->d[0]) op.to = other.to;
  if (op.to && op.to->registers != registers) fail("a product of another shape into accumulators that are in flight");
  if (!op.to) {
    op.to = std::make_shared<Accumulators>();
    op.to->registers = registers, op.to->users = 0;
    for (int t = 0; t < 128; ++t)
      for (int r = 0; r < registers; ++r) {
        op.to->where.push_back(all[t]->d[r]);
        op.to->value.push_back(*all[t]->d[r]);
        *all[t]->d[r] = IN_FLIGHT;
      }
  }
  if (p.a_in_registers)
    for (int t = 0; t < 128; ++t)
      for (uint32_t word : all[t]->product->a_registers) op.a_registers.push_back(word);
  ++op.to->users;
  group.pending.push_back(op);
}

void wait_group(Warpgroup& group, unsigned pending) {
  std::vector<Pending> left;
  for (Pending& op : group.pending) {
    if (op.group + pending < group.closed)
      finish(op);
    else
      left.push_back(op);
  }
  group.pending = left;
}

// Run `act` once, when the 128 threads of the group have come to the same instruction.
template <class Act>
void group_together(const char* what, void* operand, Act act) {
  unsigned rank = me().rank, index = rank / 128;
  if ((index + 1) * 128 > machine.threads.size()) fail("%s in a group of fewer than 128 threads", what);
  if (warpgroups.size() <= index) warpgroups.resize(index + 1);
  Warpgroup& group = warpgroups[index];
  if (group.arrived && strcmp(group.what, what)) fail("threads of a warp group are at %s and at %s", group.what, what);
  group.what = what;
  group.operands[rank % 128] = operand;
  if (++group.arrived < 128) return wait_here(what, 0, -1);
  group.arrived = 0;
  act(group, reinterpret_cast<Issue**>(group.operands.data()));
  for (unsigned t = index * 128; t < (index + 1) * 128; ++t) wake(machine.threads[t]);
}

}  // namespace

void forget_products() {
  warpgroups.clear();
  warpgroups.resize((machine.threads.size() + 127) / 128);
}

void mma(const Product& product, uint32_t* d, const uint32_t* a, const uint32_t* b, const uint32_t* c) {
  Mma operand{&product, {}, {}, {}, {}};
  int half = product.k / (4 * per_register(product.a)), accumulators = product.d == F16 ? 2 : 4;
  memcpy(operand.a, a, 8 * half), memcpy(operand.b, b, 4 * half), memcpy(operand.c, c, 4 * accumulators);
  warp_together("mma.sync", ~0u, &operand, multiply);
  memcpy(d, operand.d, 4 * accumulators);
}

void ldmatrix(int count, bool transposed, uint64_t address, uint32_t* registers) {
  Rows rows{count, transposed, address, registers, nullptr};
  warp_together(transposed ? "ldmatrix.trans" : "ldmatrix", ~0u, &rows, move_rows);
}

void stmatrix(int count, bool transposed, uint64_t address, const uint32_t* registers) {
  Rows rows{count, transposed, address, nullptr, registers};
  warp_together(transposed ? "stmatrix.trans" : "stmatrix", ~0u, &rows, move_rows);
}

void wgmma(const GroupProduct& product, uint32_t* const* d) {
  Issue operand{&product, d, 0};
  group_together("wgmma.mma_async", &operand, issue);
}

void wgmma_fence() {
  group_together("wgmma.fence", nullptr, [](Warpgroup& group, Issue**) { group.fenced = true; });
}

void wgmma_commit() {
  group_together("wgmma.commit_group", nullptr, [](Warpgroup& group, Issue**) { ++group.closed; });
}

void wgmma_wait(unsigned pending) {
  Issue operand{nullptr, nullptr, pending};
  group_together("wgmma.wait_group", &operand,
                 [](Warpgroup& group, Issue** all) { wait_group(group, all[0]->pending); });
}

}  // namespace emu
