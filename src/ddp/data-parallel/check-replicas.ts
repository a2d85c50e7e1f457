import { ModuleBuffer } from '../../graph/trace/module-buffer.ts'
import { Parameter } from '../../graph/trace/parameter.ts'
import type { StoredTensor } from '../../graph/trace/stored-tensor.ts'
import { digestOfAll } from '../../nn/contents-digest.ts'
import type { CollectiveOptions } from '../../peer/collective/collectives.ts'
import type { CollectiveGroup } from '../../peer/group/collective-group.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import { clippedMessage } from '../../util/clipped.ts'
import { PeerError } from '../../util/errors.ts'
import { firstDifference } from '../../util/first-difference.ts'
import { isRecord, isText, isTexts } from '../../util/kind-of.ts'
import { formatShape } from '../../util/shape.ts'

/** A tensor of the module, by its key. */
export type NamedTensor = readonly [key: string, tensor: StoredTensor]

/** `parameter "fc.weight" f32[3, 4]` */
const describe = ([key, tensor]: NamedTensor): string =>
  `${tensor instanceof ModuleBuffer ? 'buffer' : 'parameter'} "${key}" ${tensor.dtype}${formatShape(tensor.shape)}`

export const isFrozen = (tensor: StoredTensor): boolean =>
  tensor instanceof Parameter && !tensor.requiresGrad

/** Report of a rank on the model that it wraps. */
interface Report {
  /** Settings, parameters and buffers. */
  readonly replica: readonly string[]
  /** SHA-256 of its frozen parameters. */
  readonly frozen?: string
  /** Why it cannot be trained there. */
  readonly failure?: string
}

const isReport = (received: unknown): received is Report =>
  isRecord(received) &&
  isTexts(received.replica) &&
  [received.failure, received.frozen].every((text) => text === undefined || isText(text))

/**
 * Compares the ranks' settings, parameters and buffers: names, shapes, dtypes and their order. Returns whether all have the same contents of
 * frozen parameters, so that these need not travel.
 *
 * `failure`: why the model cannot be trained on this rank, thrown when the others know of it.
 * errors: `failure`; `peer.mismatch`, the same on all other ranks, naming the first that differs and the ranks; the group's.
 */
export async function checkReplicas(
  group: CollectiveGroup,
  settings: string,
  tensors: readonly NamedTensor[],
  options: CollectiveOptions,
  failure?: Error,
): Promise<boolean> {
  const frozen = tensors.filter((one): one is readonly [string, Parameter] => isFrozen(one[1]))
  const own: Report = {
    replica: [settings, ...tensors.map(describe)],
    ...(frozen.length > 0 && { frozen: await digestOfAll(frozen) }),
    ...(failure && { failure: failure.message }),
  }
  const all = await gatherJson('DistributedDataParallel', group, own, isReport, options)
  if (failure) throw failure
  const failed = all.flatMap(({ failure: text }, rank) =>
    text === undefined ? [] : [`rank ${group.ranks[rank]}: ${clippedMessage(text)}`],
  )
  if (failed.length > 0) {
    throw new PeerError(
      'peer.mismatch',
      `DistributedDataParallel: the module cannot be trained on ${failed.join('; on ')}`,
    )
  }
  const received = all.map(({ replica }) => replica)
  const difference = firstDifference(received, 'no further one')
  if (!difference) return all.every((one) => one.frozen === own.frozen)
  const isSettings = difference.at === 0
  throw new PeerError(
    'peer.mismatch',
    `DistributedDataParallel: ranks disagree about ${isSettings ? 'options' : 'parameters and buffers, or their order'}: ${difference.text}. ${isSettings ? 'Pass the same options on all ranks.' : 'Build the same module on all ranks.'}`,
  )
}
