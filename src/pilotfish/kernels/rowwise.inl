// Norm, quantization of activations, rope, gate: what works on one row at a time.

namespace {

void rms_norm(const float* x, const float* weight, float eps, int n, float* y) {
  Lanes squares = Lanes::set(0.0f);
  for (int i = 0; i < n; i += 16) {
    const Lanes v = Lanes::load(x + i);
    squares = fma(v, v, squares);
  }
  const float mean = sum(squares) / static_cast<float>(n);
  const float fault = mean - mean;  // 0, or NaN: a norm that overflows is no row of zeros
  const Lanes factor = Lanes::set(1.0f / __builtin_sqrtf(mean + eps) + fault);
  for (int i = 0; i < n; i += 16) mul(mul(Lanes::load(x + i), factor), Lanes::load(weight + i)).store(y + i);
}

void quantize(const float* x, int n, ActBlock* out, int step) {
  for (int b = 0; b < n / kBlock; b++, x += kBlock, out += step) {
    const Lanes first = Lanes::load(x), second = Lanes::load(x + 16);
    const float amax = largest(max(abs(first), abs(second)));
    const bool tiny = amax < 1e-30f;  // 127 / amax would overflow; so small a block is zero
    const float inverse = tiny ? 0.0f : 127.0f / amax;
    const Lanes low = Lanes::set(-127.0f), high = Lanes::set(127.0f), factor = Lanes::set(inverse);
    const Lanes zero = Lanes::set(0.0f);
    const float fault = sum(fma(first, zero, mul(second, zero)));  // 0, or NaN: max and min may lose a NaN
    const Lanes q[2] = {min(max(nearest(mul(first, factor)), low), high),
                        min(max(nearest(mul(second, factor)), low), high)};
    int32_t s[2];
    for (int half = 0; half < 2; half++) {
      for (int part = 0; part < kParts; part++)
        V::store_codes(out->q + 16 * half + part * V::W, q[half].v[part]);
      s[half] = static_cast<int32_t>(sum(q[half]));  // whole numbers: exact
    }
    out->d = (tiny ? 0.0f : amax / 127.0f) + fault;
    out->s16[0] = static_cast<int16_t>(s[0]);
    out->s16[1] = static_cast<int16_t>(s[1]);
    out->sum = s[0] + s[1];
    out->ds = out->d * static_cast<float>(out->sum);
  }
}

void silu_mul(const float* gate, const float* up, float* y, int n) {
  const Lanes zero = Lanes::set(0.0f), one = Lanes::set(1.0f);
  for (int i = 0; i < n; i += 16) {
    const Lanes g = Lanes::load(gate + i);
    mul(div(g, add(one, exp(sub(zero, g)))), Lanes::load(up + i)).store(y + i);
  }
}

// gelu(g) = g (1 + tanh(u)) / 2 with u = sqrt(2 / pi) (g + 0.044715 g^3), which is g / (1 + exp(-2 u)).
void gelu_mul(const float* gate, const float* up, float* y, int n) {
  const Lanes one = Lanes::set(1.0f), cubic = Lanes::set(0.044715f);
  const Lanes slope = Lanes::set(-1.59576912160573071f);  // -2 sqrt(2 / pi)
  for (int i = 0; i < n; i += 16) {
    const Lanes g = Lanes::load(gate + i);
    const Lanes bent = fma(mul(mul(g, g), cubic), g, g);
    mul(div(g, add(one, exp(mul(slope, bent)))), Lanes::load(up + i)).store(y + i);
  }
}

void rope(float* x, const float* cosine, const float* sine, int half) {
  for (int i = 0; i < half; i += 16) {
    const Lanes a = Lanes::load(x + i), b = Lanes::load(x + half + i);
    const Lanes c = Lanes::load(cosine + i), s = Lanes::load(sine + i);
    sub(mul(a, c), mul(b, s)).store(x + i);
    add(mul(b, c), mul(a, s)).store(x + half + i);
  }
}

void scale(float* x, float factor, int n) {
  const Lanes f = Lanes::set(factor);
  for (int i = 0; i < n; i += 16) mul(Lanes::load(x + i), f).store(x + i);
}

void to_half(const float* x, uint16_t* y, int n) {
  for (int i = 0; i < n; i += 16) Lanes::load(x + i).store_half(y + i);
}

}  // namespace
