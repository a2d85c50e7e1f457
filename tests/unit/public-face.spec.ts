import { expect, expectTypeOf, test } from 'vitest'
import type {
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
  MemoryLinkOptions,
  ModelRecipe,
  MultiheadAttentionOptions,
  PadOptions,
  PoolOptions,
  PrepareOptions,
  Reduction,
  RnnOptions,
  RotaryEmbeddingOptions,
  RotaryOptions,
  ScalarSlot,
  ServeOptions,
} from '../../src/index.ts'
import { compile, gradientWeight, models, tensorType } from '../../src/index.ts'

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
  MemoryLinkOptions,
  ModelRecipe,
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
  const model = models.mlp.make()
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
