import { ofRows } from '../../graph/functions/linear.ts'
import type { AnyRuntime } from '../../graph/memory/runtime.ts'
import type { RunOutputs } from '../../graph/plan/step-program.ts'
import { autocast } from '../../graph/trace/autocast.ts'
import type { Tensor } from '../../graph/trace/tensor.ts'
import type { Module } from '../../nn/module.ts'
import { initDeviceMesh } from '../../parallel/mesh/device-mesh.ts'
import { pipeline } from '../../parallel/pipeline/pipe.ts'
import { Schedule1F1B } from '../../parallel/pipeline/schedule.ts'
import { replicate } from '../../parallel/replicated/replicate.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { formatDevice } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { isText } from '../../util/kind-of.ts'
import { pipelinesOf, ranksNeeded } from '../settings/parallel.ts'
import type { Task, TaskInputs } from '../settings/task.ts'
import type { RankPart } from '../watch/run-events.ts'
import { gatherModel, meanOver } from './gather-model.ts'
import type { SharedModel } from './shared-model.ts'

/** Micro-batches for each stage: the more, the less a stage idles, and the more launches a step has. */
const microBatchesPerStage = 2

/**
 * Each rank has a stage of the model; groups of as many neighbouring ranks as there are stages are replicas.
 *
 * Gradients are sums over micro-batches, and means over replicas. errors: `config.invalid` for a number of ranks that is not a multiple of the
 * stages, or not stages times replicas.
 */
export async function pipelined(
  task: Task,
  module: Module,
  group: ProcessGroup,
  parallel: string,
  runtime: AnyRuntime,
): Promise<SharedModel> {
  const needed = ranksNeeded(parallel, group.size)
  if (needed) {
    throw new TabringError(
      'config.invalid',
      `parallel: ${parallel} needs ${needed}, got ${group.size}. Start that number, or choose other pipelines.`,
    )
  }
  const { stages } = pipelinesOf(parallel)!
  const mesh = await initDeviceMesh('webgpu', [group.size / stages, stages], {
    meshDimNames: ['dp', 'pp'],
    processGroup: group,
  })
  const parts = mesh.getGroup('pp')
  const replicas = mesh.getGroup('dp')
  const devices = await gatherJson('the devices', group, formatDevice(runtime.device), isText)
  const pipe = await pipeline(module, {
    stages,
    devices: parts.ranks.map((rank) => `rank:${rank}/${devices[group.ranks.indexOf(rank)]}`),
  })
  if (replicas.size > 1) await replicate(module, { mesh: mesh.get('dp') })
  const microBatches = microBatchesPerStage * stages
  const schedule = new Schedule1F1B(pipe, { microBatches })
  const cut = (inputs: TaskInputs, at: number): TaskInputs =>
    Object.fromEntries(
      Object.entries(inputs).map(([name, x]) => {
        const rows = x.shape[0] / microBatches
        return [name, x.narrow(0, at * rows, rows)]
      }),
    )
  const byKey = new Map(module.namedParameters())
  const held = group.ranks.map((_, at): RankPart => {
    const { layers, keys } = pipe.stages[at % stages]
    return {
      layers,
      parameterBytes: keys.reduce((sum, key) => sum + 4 * (byKey.get(key)?.count ?? 0), 0),
    }
  })
  return {
    held,
    ...gatherModel(module),
    model: module,
    dataRanks: replicas,
    parts,
    rowsFor: (rows) => Math.ceil(rows / microBatches) * microBatches,
    mean: meanOver(replicas),
    backward(inputs, scaler) {
      const cast = <T>(work: () => T): T => (scaler ? autocast({ dtype: 'float16' }, work) : work())
      const batch = Object.values(inputs)[0].shape[0]
      const rows = batch / microBatches
      const { loss, outputs } = schedule.stepOf(batch, () => ({
        forward: (at) => cast(() => task.forward(module, cut(inputs, at))),
        loss: (output, at) =>
          cast(() =>
            ofRows(at * rows, rows, (share) => task.loss(output, cut(inputs, at)).mul(share)),
          ),
        ...(scaler && { scaled: (loss) => scaler.scale(loss) }),
      }))
      const { measure } = task
      const sum =
        measure &&
        outputs
          .map((output, at) =>
            ofRows(at * rows, rows, () => cast(() => measure(output, cut(inputs, at)))),
          )
          .reduce((total: Tensor, own) => total.add(own))
      return { loss, sum }
    },
    async shareOutputs(outputs): Promise<RunOutputs> {
      const numbers = Float32Array.of(outputs.loss?.[0] ?? 0, outputs.metric?.[0] ?? 0)
      await parts.broadcast(numbers, stages - 1, { label: 'the loss' })
      return Object.assign(outputs, {
        loss: numbers.subarray(0, 1),
        ...(task.measure && { metric: numbers.subarray(1) }),
      })
    },
  }
}
