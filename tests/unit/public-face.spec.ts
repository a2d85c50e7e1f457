import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, expectTypeOf, test } from 'vitest'
import { entries } from '../../scripts/entries.ts'
import type { GradScalerOptions, GradScalerState } from '../../src/entries/amp.ts'
import type { DistributedSamplerOptions, ServeOptions } from '../../src/entries/data.ts'
import type {
  ChannelLinkOptions,
  GroupConfig,
  GroupOptions,
  InitProcessGroupOptions,
} from '../../src/entries/distributed.ts'
import type { AccumulationOptions, ErrorCode, PrepareOptions } from '../../src/entries/index.ts'
import { compile, tensorType } from '../../src/entries/index.ts'
import type {
  AvgPoolOptions,
  BatchNormOptions,
  BinaryOptions,
  ClassLossOptions,
  ConvOptions,
  ConvTransposeOptions,
  CrossEntropyOptions,
  DropoutOptions,
  LossOptions,
  MaxPoolOptions,
  PoolOptions,
  Reduction,
  RotaryOptions,
} from '../../src/entries/nn/functional.ts'
import type { DistributedDataParallelOptions } from '../../src/entries/nn/parallel.ts'
import { gradientWeight } from '../../src/entries/nn/parallel.ts'
import type {
  BatchNormLayerOptions,
  CellOptions,
  Conv1dOptions,
  Conv2dOptions,
  ConvTranspose2dOptions,
  EmbeddingOptions,
  KLDivOptions,
  LayerNormOptions,
  MultiheadAttentionOptions,
  PadOptions,
  RnnOptions,
  RotaryEmbeddingOptions,
} from '../../src/entries/nn.ts'
import type { EmaState } from '../../src/entries/optim.ts'
import type { EagerOptions, ScalarSlot } from '../../src/entries/runtime.ts'
import { mlp } from '../../src/nn/mlp.ts'
import { repository } from '../support/repository.ts'

type Named = [
  AccumulationOptions,
  AvgPoolOptions,
  BatchNormLayerOptions,
  BatchNormOptions,
  BinaryOptions,
  CellOptions,
  ChannelLinkOptions,
  ClassLossOptions,
  Conv1dOptions,
  Conv2dOptions,
  ConvOptions,
  ConvTranspose2dOptions,
  ConvTransposeOptions,
  CrossEntropyOptions,
  DistributedDataParallelOptions,
  DistributedSamplerOptions,
  DropoutOptions,
  EagerOptions,
  EmaState,
  EmbeddingOptions,
  ErrorCode,
  GradScalerOptions,
  GradScalerState,
  GroupConfig,
  GroupOptions,
  InitProcessGroupOptions,
  KLDivOptions,
  LayerNormOptions,
  LossOptions,
  MaxPoolOptions,
  MultiheadAttentionOptions,
  PadOptions,
  PoolOptions,
  PrepareOptions,
  Reduction,
  RnnOptions,
  RotaryEmbeddingOptions,
  RotaryOptions,
  ScalarSlot,
  ServeOptions<unknown>,
]

test('the types that public calls take have names outside', () => {
  // The compiler checks the import.
  expectTypeOf<Named>().not.toBeAny()
})

test('gradientWeight names the scalar by which backward begins', async () => {
  const model = mlp()
  const program = await compile(
    ({ x }) => {
      const loss = model.forward(x).mean()
      loss.backward()
      return { d: model.parameters()[3].grad! }
    },
    { x: tensorType([1, 784]) },
    { device: 'reference' },
  )
  const given = { x: new Float32Array(784) }
  const { d: whole } = await program.run(given)
  const { d: half } = await program.run(given, { [gradientWeight]: 0.5 })
  expect([...half]).toEqual([...whole].map((value) => value / 2))
  program.destroy()
})

test('the package exports the entry points, and nothing else besides its tools', () => {
  const { exports } = JSON.parse(readFileSync(join(repository, 'package.json'), 'utf8'))
  const expected = entries.map(({ specifier, file }) => {
    const path = file.slice('src/'.length, -'.ts'.length)
    const paths = {
      types: `./dist-lib/types/${path}.d.ts`,
      default: `./dist-lib/${path.slice('entries/'.length)}.js`,
    }
    return [specifier.replace('tabring', '.'), paths]
  })
  const { './vite': _, './playwright': __, './package.json': ___, ...own } = exports
  expect(own).toEqual(Object.fromEntries(expected))
})

test('a name is in one entry point, except those of torch and torch.nn.functional', async () => {
  const homes = new Map<unknown, string[]>()
  for (const { specifier, file } of entries)
    for (const [name, value] of Object.entries(await import(join(repository, file))))
      homes.set(value, [...(homes.get(value) ?? []), `${specifier}: ${name}`])
  const shared = [...homes.values()].filter(({ length }) => length > 1).sort()
  const names = `adaptiveAvgPool1d avgPool1d conv1d conv2d convTranspose2d logSoftmax relu sigmoid
    softmax tanh`.split(/\s+/)
  expect(shared).toEqual(
    names.map((name) => [`tabring: ${name}`, `tabring/nn/functional: ${name}`]),
  )
})
