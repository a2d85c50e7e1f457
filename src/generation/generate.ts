import type { CausalLm } from '../nn/causal-lm.ts'
import { RandomStream } from '../util/random.ts'
import { CachedModel } from './cached-model.ts'
import { chooseToken } from './choose-token.ts'
import { checkGenerate, type GenerateOptions } from './generate-options.ts'

/**
 * Continues tokens one by one, and yields each as soon as it is there.
 *
 * order: the penalty of repetitions, then temperature, topK and topP, as in transformers. The same seed gives the same tokens on one device.
 * cost: two compilations at the first token; then one run a token, which reads all weights once. Keys and values of all tokens are stored.
 * errors: `config.invalid`; `shape.mismatch` for too long a text.
 */
export async function* generate(
  model: CausalLm,
  tokens: readonly number[],
  options: GenerateOptions = {},
): AsyncGenerator<number, void, void> {
  const { maxNewTokens, stopTokens, seed, length, ...choice } = checkGenerate(
    model.config,
    tokens,
    options,
  )
  const { runtime } = options
  const cached = await CachedModel.create(model, length, { ...(runtime && { runtime }) })
  try {
    const stream = new RandomStream(seed, 0)
    const seen = new Set(tokens)
    let logits = await cached.read(tokens)
    for (let made = 1; ; made++) {
      const token = chooseToken(logits, seen, choice, stream)
      if (stopTokens.includes(token)) return
      yield token
      if (made === maxNewTokens) return
      seen.add(token)
      logits = await cached.read([token])
    }
  } finally {
    cached.destroy()
  }
}
