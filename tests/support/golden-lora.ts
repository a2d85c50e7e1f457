import { saveAdapter } from '../../src/ddp/checkpoint/adapter-file.ts'
import { compile } from '../../src/graph/compile/compile.ts'
import { crossEntropy } from '../../src/graph/functions/losses.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import type { Tensor } from '../../src/graph/trace/tensor.ts'
import { Tanh } from '../../src/nn/activations.ts'
import { type GptConfig, gpt } from '../../src/nn/gpt.ts'
import { Linear } from '../../src/nn/layers.ts'
import type { LoraConfig } from '../../src/nn/lora/config.ts'
import { getPeftModel, type PeftModel } from '../../src/nn/lora/peft-model.ts'
import { type Module, Sequential } from '../../src/nn/module.ts'
import { tensorType } from '../../src/util/shape.ts'
import golden from '../golden/lora.json'
import { formulaUniform, formulaWord } from './formula-data.ts'
import type { GoldenResult } from './golden.ts'

// Adapters that PyTorch trained by PEFT's rules (tests/golden/lora.py).

interface Drawn {
  readonly key: string
  readonly shape: number[]
  readonly seed: number
}

export interface LoraCase {
  readonly name: string
  readonly config: LoraConfig
  readonly weights: readonly Drawn[]
  readonly factors: readonly Drawn[]
  readonly losses: number[]
  readonly distances: number[]
  readonly outputs: Readonly<Record<string, GoldenResult>>
}

export const cases = golden.cases as unknown as LoraCase[]
export const caseOf = (name: string): LoraCase => cases.find((one) => one.name === name)!
export const { lr, rows } = golden
const config = golden.gptConfig as GptConfig
const { vocabSize, blockSize } = config

const contentsOf = (drawn: readonly Drawn[]) =>
  drawn.map(({ key, shape, seed }) => {
    const count = shape.reduce((product, size) => product * size, 1)
    return [key, { shape, data: formulaUniform(seed, count, 0.5) }] as const
  })

/** The base with PyTorch's weights. */
export function baseOf({ name, weights }: LoraCase): Module {
  const model =
    name === 'gpt'
      ? gpt(config)
      : new Sequential(
          new Linear(6, 10),
          new Tanh(),
          new Linear(10, 8),
          new Tanh(),
          new Linear(8, 4),
        )
  model.loadStateDict(Object.fromEntries(contentsOf(weights)))
  return model
}

/** A and B of all layers by the keys that PEFT's files have after their prefix. */
export function factorsOf(model: PeftModel, name = 'default') {
  return [...model.adaptedLayers(name)].flatMap(([path, layer]) => {
    const { a, b } = layer.factors(name)
    return [[`${path}.lora_A.weight`, a] as const, [`${path}.lora_B.weight`, b] as const]
  })
}

/** The base with an adapter, both with PyTorch's first weights. */
export function adapted(given: LoraCase): PeftModel {
  const model = getPeftModel(baseOf(given), given.config)
  const drawn = new Map(contentsOf(given.factors))
  for (const [key, factor] of factorsOf(model)) factor.assign(drawn.get(key)!.data)
  return model
}

const tokenAt = (index: number): number =>
  (index * 7 + (formulaWord(golden.tokenSeed, index) >>> 30)) % vocabSize

/** Inputs and labels of a step. */
export function batchOf({ name }: LoraCase, step: number) {
  if (name !== 'gpt')
    return {
      x: formulaUniform(9000 + step, rows * 6, 2),
      y: Int32Array.from({ length: rows }, (_, i) => formulaWord(9500 + step, i) >>> 30),
    }
  const at = (shift: number) =>
    Int32Array.from({ length: 3 * blockSize }, (_, i) => {
      const row = step * 3 + Math.floor(i / blockSize)
      return tokenAt(row * (blockSize + 1) + (i % blockSize) + shift)
    })
  return { x: at(0), y: at(1) }
}

export const typesOf = ({ name }: LoraCase) =>
  name === 'gpt'
    ? { x: tensorType([3, blockSize], 'i32'), y: tensorType([3 * blockSize], 'i32') }
    : { x: tensorType([rows, 6]), y: tensorType([rows], 'i32') }

export const lossOf = (model: Module, { x, y }: Record<string, Tensor>): Tensor =>
  crossEntropy(model.forward(x).reshape([y.shape[0], -1]), y)

/** Logits of PyTorch's probe. */
export async function probe(
  given: LoraCase,
  forward: (x: Tensor) => Tensor,
  runtime: AnyRuntime,
): Promise<ArrayLike<number>> {
  const { x } = typesOf(given)
  const program = await compile((inputs) => ({ y: forward(inputs.x) }), { x }, { runtime })
  const { y } = await program.run({ x: batchOf(given, 1000).x })
  program.destroy()
  return y
}

/** Files that lora.py reads: those of an rsLoRA adapter, for programs that know alpha / r alone. */
export const makeLoraFiles = () => saveAdapter(adapted(caseOf('rslora')), { useRslora: false })
