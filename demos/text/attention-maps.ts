import { where } from '../../src/graph/functions/elementwise.ts'
import { ones, tril } from '../../src/graph/functions/shape.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import type { Gpt } from '../../src/nn/gpt.ts'

/** A score that no softmax sees. */
const hidden = -1e38

/**
 * Returns the probabilities of attention of each layer, which the model itself never stores: queries and keys by its own layers, over the
 * inputs that these get in `forward`.
 *
 * shape: tokens [1, T] of i32 -> [heads, T, T] for each layer, rows are queries
 */
export function attentionMaps({ transformer, config }: Gpt, tokens: Tensor): Tensor[] {
  const [, length] = tokens.shape
  const { heads, width } = config
  const size = width / heads
  const isSeen = tril(ones([length, length]))
  const positions = transformer.wpe.weight.narrow(0, 0, length)
  let x = transformer.wte.forward(tokens).add(positions).reshape([length, width])
  return [...transformer.h].map((block) => {
    const qkv = block.attn.c_attn.forward(block.ln_1.forward(x))
    const part = (n: number) => qkv.narrow(1, n * width, width).reshape([length, heads, size])
    const scores = part(0)
      .permute(1, 0, 2)
      .matmul(part(1).permute(1, 2, 0))
      .mul(size ** -0.5)
    x = block.forward(x, 1)
    return where(isSeen, scores, hidden).softmax(2)
  })
}
