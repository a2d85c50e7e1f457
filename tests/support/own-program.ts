import { parseTrainConfig } from '../../demos/experiments.ts'
import { epochOrder, stepsPerEpoch } from '../../src/data/shares.ts'
import type { CollectiveGroup } from '../../src/entries/distributed.ts'
import { compile, manualSeed } from '../../src/entries/index.ts'
import { DistributedDataParallel, paramDigest } from '../../src/entries/nn/parallel.ts'
import { AdamW } from '../../src/entries/optim.ts'
import type { AnyRuntime } from '../../src/graph/memory/runtime.ts'
import { batchArrays } from '../../src/trainer/evaluate/share-batches.ts'
import type { TrainConfigInput } from '../../src/trainer/settings/config.ts'
import { learningRateOf } from '../../src/trainer/settings/demo-meta.ts'
import type { Task } from '../../src/trainer/settings/task.ts'

/** Trains a demo's task with AdamW and `exact` as a person's own program does, not by the built-in training; every rank calls it. */
export async function trainByOwnProgram(
  task: Task,
  input: TrainConfigInput & { readonly steps: number },
  { processGroup, runtime }: { processGroup?: CollectiveGroup; runtime?: AnyRuntime } = {},
): Promise<{ losses: number[]; paramHash: string }> {
  const config = parseTrainConfig(input)
  const { seed, batchSize, virtualWorkers } = config
  const data = await task.load({ config, baseUrl: 'https://data.example/' } as never)
  manualSeed(seed)
  const model = new DistributedDataParallel(task.model(config, data), {
    ...(processGroup && { processGroup }),
    exact: { virtualWorkers },
  })
  const optimizer = new AdamW(model.parameters(), { lr: learningRateOf(config, task.meta) })
  const step = await compile(
    (inputs) => {
      const loss = task.loss(task.forward(model, inputs), inputs)
      loss.backward()
      optimizer.step()
      return { loss }
    },
    task.types(config, data, model.exactShare(batchSize).rows),
    { ...(runtime && { runtime }) },
  )
  const losses: number[] = []
  const { count } = data.train
  const perEpoch = stepsPerEpoch(count, batchSize)
  for (let i = 0; i < input.steps; i++) {
    const order = epochOrder(seed, Math.floor(i / perEpoch), count)
    const begin = (i % perEpoch) * batchSize
    const batch = order.subarray(begin, begin + batchSize)
    const { start, end } = model.exactShare(batchSize, batch.length)
    const inputs = batchArrays(task.types(config, data, end - start))
    task.fill(data, 'train', batch.subarray(start, end), inputs)
    const { loss } = await step.run(inputs)
    losses.push(loss[0])
  }
  return { losses, paramHash: await paramDigest(model.parameters(), runtime) }
}
