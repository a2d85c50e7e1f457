import { compile } from '../graph/compile/compile.ts'
import { attend } from '../graph/functions/attention.ts'
import { arange } from '../graph/functions/shape.ts'
import type { AnyRuntime } from '../graph/memory/runtime.ts'
import type { StepProgram } from '../graph/plan/step-program.ts'
import { ModuleBuffer } from '../graph/trace/module-buffer.ts'
import { emit, type Tensor } from '../graph/trace/tensor.ts'
import { writeRows } from '../kernels/write-rows/write-rows.ts'
import type { CausalLm, Sequences } from '../nn/causal-lm.ts'
import type { CausalLmConfig } from '../nn/causal-lm-config.ts'
import { tensorType } from '../util/shape.ts'

/** Tokens that one run reads while it reads the beginning of a text. */
const chunk = 32

/** Calls a function that calls the model, with its adapter or without. */
export type Traced = <R>(fn: () => R) => R

type Program = StepProgram<{ logits: Tensor }>

/** A model that keeps keys and values of the tokens it has read: one program reads many tokens, the other one. */
export class CachedModel {
  readonly #caches: readonly ModuleBuffer[]
  readonly #many: Program
  readonly #one: Program
  readonly #lastPosition: number
  #length = 0

  private constructor(
    { maxPositionEmbeddings }: CausalLmConfig,
    caches: readonly ModuleBuffer[],
    many: Program,
    one: Program,
  ) {
    this.#lastPosition = maxPositionEmbeddings - 1
    this.#caches = caches
    this.#many = many
    this.#one = one
  }

  /** `length`: of the longest sequence. cost: two compilations; memory for keys and values of `length` tokens. */
  static async create(
    model: CausalLm,
    traced: Traced,
    length: number,
    runtime?: AnyRuntime,
  ): Promise<CachedModel> {
    const { numHiddenLayers, numKeyValueHeads, headDim } = model.config
    // The last chunk may end behind the last token.
    const rows = Math.ceil(length / chunk) * chunk
    const shape = [rows, numKeyValueHeads * headDim]
    const caches = Array.from(
      { length: 2 * numHiddenLayers },
      () => new ModuleBuffer(shape, new Float32Array(shape[0] * shape[1])),
    )
    const program = (count: number) =>
      compile(
        (inputs) => {
          const logits = () => model.evaluating(() => continued(model, inputs, caches, rows))
          return { logits: traced(logits) }
        },
        {
          tokens: tensorType([1, count], 'i32'),
          positions: tensorType([count], 'i32'),
          last: tensorType([1], 'i32'),
        },
        { ...(runtime && { runtime }) },
      )
    const many = await program(chunk)
    return new CachedModel(model.config, caches, many, await program(1))
  }

  /** Reads further tokens and returns the logits after the last. */
  async read(tokens: readonly number[]): Promise<Float32Array> {
    let logits = new Float32Array()
    for (let at = 0; at < tokens.length; ) {
      const isOne = tokens.length - at === 1
      const part = tokens.slice(at, at + (isOne ? 1 : chunk))
      const first = this.#length
      const run = await (isOne ? this.#one : this.#many).run({
        // Behind the last token are tokens that no other sees, and which later ones replace.
        tokens: Int32Array.from({ length: isOne ? 1 : chunk }, (_, i) => part[i] ?? 0),
        positions: Int32Array.from({ length: isOne ? 1 : chunk }, (_, i) =>
          Math.min(first + i, this.#lastPosition),
        ),
        last: Int32Array.of(part.length - 1),
      })
      logits = run.logits as Float32Array<ArrayBuffer>
      at += part.length
      this.#length += part.length
    }
    return logits
  }

  destroy(): void {
    this.#many.destroy()
    this.#one.destroy()
    for (const cache of this.#caches) cache.destroy()
  }
}

/** The logits after row `last` of further tokens, whose keys and values go into the caches. shape: -> [1, vocabSize] */
function continued(
  model: CausalLm,
  { tokens, positions, last }: Readonly<Record<string, Tensor>>,
  caches: readonly ModuleBuffer[],
  rows: number,
): Tensor {
  const start = positions.narrow(0, 0, 1)
  const attnMask = positions.reshape([-1, 1]).ge(arange(rows, { dtype: 'i32' }))
  const sequencesOf = (layer: number): Sequences => ({
    turn: (x, heads) => model.model.rotaryEmb.forward(x, { heads, positions }),
    attend(query, key, value, sizes) {
      const [keys, values] = [key, value].map((x, n) =>
        emit(writeRows, [caches[2 * layer + n], x, start], {}),
      )
      return attend([query, keys, values], 'tokens', { batch: 1, ...sizes }, { attnMask })
    },
  })
  const hidden = model.model.forward(tokens, sequencesOf)
  return model.head(hidden.indexSelect(0, last))
}
