import { formatDevice, type PlacedDevice, sameDevice } from '../../util/device.ts'
import { TabringError } from '../../util/errors.ts'
import { formatRanks } from '../../util/format-ranks.ts'
import { formatShape } from '../../util/shape.ts'
import { runtimeOf } from '../memory/default-runtime.ts'
import { memoryOf } from '../memory/memory-of.ts'
import { type AnyRuntime, ReferenceRuntime } from '../memory/runtime.ts'
import { agree, agreeOnTransfers, type TransferRecord } from '../plan/agreement.ts'
import { allNodes, partsOf, transfersOf } from '../plan/parts.ts'
import { type PrepareOptions, planStep, type TracedStep } from '../plan/prepare.ts'
import { hasJointUpdate } from '../run/agree-on-numbers.ts'
import { crossingBytes } from '../run/crossings.ts'
import { SplitProgram } from '../run/split-program.ts'
import type { RankMessages } from '../trace/exchange.ts'
import type { StoredTensor } from '../trace/stored-tensor.ts'
import { storedIn } from '../trace/value.ts'
import { checkDevices } from './check-devices.ts'
import { createProgram } from './create-program.ts'
import { agreeOnStep, endingAll, type MadeProgram } from './failing-together.ts'
import { withChecks } from './output-checks.ts'

type PartsOptions = PrepareOptions & {
  readonly detectAnomaly?: boolean
  readonly group?: RankMessages
}

/**
 * Compiles a step whose tensors move between devices: one program for each device.
 *
 * `runtime`: the device of what was not moved to one. `telling`: sends other ranks an error that ends the work. errors: those of
 * `partsOf`, `agree` and each device; `graph.misuse` for what works on one device only.
 */
export async function compileParts(
  runtime: AnyRuntime,
  step: TracedStep,
  options: PartsOptions,
  telling: <T>(work: Promise<T>) => Promise<T>,
): Promise<MadeProgram> {
  const { group } = options
  const { parts, isOwn, groups } = await telling(planParts(runtime, step, options))
  return endingAll(groups, 'could not compile a step', async () => {
    step.trace.syncPoints?.expectSyncPoints(
      parts.flatMap(({ prepared }) => prepared.syncPoints.map((syncPoint) => syncPoint.group)),
    )
    const programs = await Promise.all(
      parts.map(async ({ device, there, prepared }) => ({
        device,
        sentBytes: prepared.crossings
          .filter(({ kind }) => kind === 'send')
          .reduce((sum, crossing) => sum + crossingBytes(crossing), 0),
        program: await createProgram(there, prepared),
      })),
    )
    for (const tensor of storedTensors(step)) {
      const { device } = tensor
      if (!group || device?.rank === undefined) continue
      tensor.holder = { ranks: group, root: group.ranks.indexOf(device.rank) }
      if (!isOwn(device)) tensor.release()
    }
    return { program: withChecks(new SplitProgram(step, programs, group)), groups }
  })
}

/** Plans this rank's parts, before any allocates, and compares the whole with the other ranks. */
async function planParts(runtime: AnyRuntime, step: TracedStep, options: PartsOptions) {
  const { trace } = step
  if (trace.exchange || trace.forwarded) throw refused('with DistributedDataParallel')
  if (trace.accumulation) throw refused('with compileAccumulated')
  if (options.detectAnomaly) throw refused('with detectAnomaly')
  const { group } = options
  const own = group?.ranks[group.rank]
  const all = partsOf(step, own)
  const isOwn = ownDevices(
    all.map(({ device }) => device),
    group,
    trace.sendsByHand,
  )
  const parts = await Promise.all(
    all
      .filter(({ device }) => isOwn(device))
      .map(async ({ device, step: part }) => {
        const here = { type: device.type, index: device.index }
        const there = sameDevice(here, runtime.device) ? runtime : await runtimeOf(here)
        const isReference = there instanceof ReferenceRuntime
        const prepared = planStep(there, part, {
          ...options,
          ...(isReference && { useNaiveKernels: true }),
        })
        checkDevices(prepared, memoryOf(there))
        return { device, there, prepared }
      }),
  )
  const groups = await agreeOnStep(
    trace,
    parts.flatMap(({ prepared }) => prepared.syncPoints),
    group && {
      group,
      compare: async () => {
        await agreeOnTransfers(group, transferRecords(step, own!))
        if (hasJointUpdate(trace, group)) await agree(group, trace.consistency.lines)
      },
    },
  )
  return { parts, isOwn, groups }
}

/** Returns the transfers between ranks in this rank's trace. */
const transferRecords = (step: TracedStep, rank: number): TransferRecord[] =>
  transfersOf(allNodes(step), rank).flatMap(({ node, tag, from, to }) => {
    const [{ type }] = node.inputs
    const task = step.trace.taskName(node)
    const into = task ? `, into ${task}` : ''
    const text = `transfer ${tag} from rank ${from} to rank ${to}${into}: ${type.dtype}${formatShape(type.shape)}`
    return from === to ? [] : [{ from: from!, to: to!, text }]
  })

/**
 * Which devices are this rank's.
 *
 * errors: `config.invalid` for devices of ranks without a group, of ranks that it does not have, and beside devices that belong to no rank.
 */
function ownDevices(
  devices: readonly PlacedDevice[],
  group: RankMessages | undefined,
  sendsByHand: boolean,
): (device: PlacedDevice) => boolean {
  const named = devices.find(({ rank }) => rank !== undefined)
  if (!named) return () => true
  const refuse = (text: string) => new TabringError('config.invalid', `compile: ${text}`)
  if (!group)
    throw refuse(
      `the step uses ${formatDevice(named)}, but has no group. Pass { group: getProcessGroup() } on every rank.`,
    )
  const far = devices.find(({ rank }) => rank !== undefined && !group.ranks.includes(rank))
  if (far)
    throw refuse(
      `the step uses ${formatDevice(far)}, but the group has ${formatRanks(group.ranks)}. Start more ranks, or use those.`,
    )
  const open = devices.find(({ rank }) => rank === undefined)
  if (open && !sendsByHand)
    throw refuse(
      `the step uses ${formatDevice(named)} and ${formatDevice(open)}, which each rank has. Name the rank of both: "rank:0/${formatDevice(open)}".`,
    )
  return ({ rank }) => rank === undefined || rank === group.ranks[group.rank]
}

/** Parameters and buffers that a step reads. */
function storedTensors(step: TracedStep): Set<StoredTensor> {
  const stored = new Set<StoredTensor>(step.updates.flatMap(({ bucket }) => bucket.parameters))
  for (const value of allNodes(step).flatMap(({ inputs }) => inputs)) {
    const tensor = storedIn(value)
    if (tensor) stored.add(tensor as StoredTensor)
  }
  return stored
}

const refused = (where: string) =>
  new TabringError(
    'graph.misuse',
    `compile: a step over several devices does not work ${where} yet. Keep the step on one WebGPU device there.`,
  )
