// SPDX-License-Identifier: Apache-2.0
//
// The gated delta rule (Yang et al. 2024, "Gated Delta Networks: Improving Mamba2 with Delta Rule",
// as in Qwen3-Next and Qwen3.5): attention whose memory is one matrix S (dk, dv) a value head. For
// token t of a document, with k and q of length 1 and q divided by sqrt(dk):
//   S = exp(g_t) S,  u_t = beta_t (v_t - S' k_t),  S = S + k_t u_t',  o_t = S' q_t      S = 0
//   before
// where x / sqrt(sum(x²) + eps) has length 1. Value head h reads query/key head h / (Hv / Hk).
//
// In chunks of C tokens (section 3.3 there, after Yang et al. 2024, "Parallelizing Linear
// Transformers with the Delta Rule"), so that all large sums are products of matrices. With b the
// running sum of g from the chunk's start, B its last, S the state before the chunk and
//   D_ij = exp(b_i - b_j) for j <= i, else 0      P = D * Q K'      X = D * K K', strictly below
//   R = V - exp(b) K S                            what the state does not yet know of the values
//   E = R - X (beta E) = R - Y (beta R)           Y = X - X (beta Y), row by row; U = beta E
//   O = exp(b) Q S + P U                          S = exp(B) S + (exp(B - b) K)' U
// where a vector before a matrix multiplies its rows. Every exponent is a difference that g <= 0
// makes negative, so that nothing overflows however strong the decay.
//
// Backward, chunk by chunk from the last, with dS the gradient of the state behind the chunk:
//   dU = P' dO + exp(B - b) K dS                  Z = dU - Y' (beta dU)
//   dV = dR = beta Z     dbeta_i = Z_i · E_i      dP = dO U'     dX = -dR U'
//   dQ = exp(b) dO S' + (D * dP) K
//   dK = (D * dP)' Q + (D * dX + (D * dX)') K - exp(b) dR S' + exp(B - b) U dS'
//   db = rows - columns of (P * dP + X * dX), and each exp's share; dg = sums of db from the end
//   dS = exp(B) dS + Q' (exp(b) dO) - K' (exp(b) dR)
// All arithmetic is float32 (b in double); each result is rounded once. Per chunk and value head
// the forward multiplies 3 C dk dv + C² (dk + dv), the backward about four times that.
//
// StateForm::Sum is Mamba 2's scan (Dao & Gu 2024, "Transformers are SSMs"): nothing that the state
// knows is taken from the values, and q and k stay as they come,
//   S = exp(g_t) S,  u_t = beta_t v_t,  S = S + k_t u_t',  o_t = S' q_t + d v_t
// with its C, B and x as q, k and v, its dt as beta, any number not below 0, and dt A as g. So the
// X, Y and all that they reach fall away above: R = E = V and Z = dU. d is a number for each value
// head: dV gets d dO and dd_t = dO_t · V_t.
#pragma once

#include <cstdint>

#include "core/kernels/scalar.h"

namespace snug::kernels {

inline constexpr float kDeltaRuleEps = 1e-6f;

// What a token adds to the state: what the state does not know yet of its value, or all of it.
enum class StateForm { Delta, Sum };

// N tokens in packed documents, Hk query/key heads, Hv value heads (a multiple).
struct DeltaRuleSizes {
  Scalar type = Scalar::F32;  // of q, k, v, out and their gradients
  int64_t num_tokens = 0;
  int64_t num_key_heads = 0, num_value_heads = 0;
  int64_t key_dim = 0, value_dim = 0;
  int64_t num_documents = 0;
  int64_t max_seqlen = 0;  // tokens of the longest document, or more; the scratch goes by it
  int64_t chunk = 64;      // C; changes last bits only
  StateForm form = StateForm::Delta;
};

struct DeltaRuleForward {
  DeltaRuleSizes sizes;
  const int32_t* cu_seqlens = nullptr;  // (num_documents + 1), from 0 to N
  const void* q = nullptr;              // (N, Hk, dk), as they come: not yet of length 1
  const void* k = nullptr;              // (N, Hk, dk)
  const void* v = nullptr;              // (N, Hv, dv)
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;  // elements from token to token
  const float* g = nullptr;                          // (N, Hv) log of the decay, at most 0
  const float* beta = nullptr;                       // (N, Hv)
  const float* skip = nullptr;                       // (Hv) d, optional, of a sum alone
  void* out = nullptr;                               // (N, Hv, dv)
  float* final_states = nullptr;  // (num_documents, Hv, dk, dv), optional; 0 of an empty document
  int num_threads = 0;            // 0: OpenMP's default
};

struct DeltaRuleBackward {
  DeltaRuleForward forward;                          // out and final_states are not read
  const void* d_out = nullptr;                       // (N, Hv, dv)
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;  // (N, Hk, dk) twice, (N, Hv, dv)
  float *dg = nullptr, *dbeta = nullptr;             // (N, Hv)
  float* dskip = nullptr;                            // (N, Hv) each token's share, where d is
};

// One token for each of S sequences, for generation.
struct DeltaRuleStep {
  Scalar type = Scalar::F32;  // of q, k, v, out
  StateForm form = StateForm::Delta;
  int64_t num_sequences = 0;
  int64_t num_key_heads = 0, num_value_heads = 0;
  int64_t key_dim = 0, value_dim = 0;
  const void *q = nullptr, *k = nullptr, *v = nullptr;  // (S, Hk, dk) twice, (S, Hv, dv)
  int64_t q_stride = 0, k_stride = 0, v_stride = 0;     // elements from sequence to sequence
  const float *g = nullptr, *beta = nullptr;            // (S, Hv)
  const float* skip = nullptr;                          // (Hv), optional
  float* states = nullptr;                              // (S, Hv, dk, dv), updated
  void* out = nullptr;                                  // (S, Hv, dv)
  int num_threads = 0;
};

namespace cpu {
// Scratch for one thread each: a chunk's matrices, in the forward some states; in the backward also
// what a document's chunks start with, (chunks, dk, dv) and, for the delta rule, (tokens, dv)
// floats, and where value heads share a key head its dq and dk, (tokens, dk) floats each.
int64_t delta_rule_forward_workspace_bytes(const DeltaRuleForward& args);
int64_t delta_rule_backward_workspace_bytes(const DeltaRuleForward& args);

// Workspaces are 64-byte aligned. Any number of threads gives the same bits.
void delta_rule_forward(const DeltaRuleForward& args, void* workspace);
void delta_rule_backward(const DeltaRuleBackward& args, void* workspace);
void delta_rule_step(const DeltaRuleStep& args);
}  // namespace cpu

}  // namespace snug::kernels
