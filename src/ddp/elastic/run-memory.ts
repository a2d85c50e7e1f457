import { type SavedState, save } from '../../data/saved-tree.ts'
import { getRngState, type RngState } from '../../nn/init.ts'
import { gatherJson } from '../../peer/group/gather-json.ts'
import type { ProcessGroup } from '../../peer/group/group.ts'
import { DataError } from '../../util/errors.ts'
import { isRecord } from '../../util/kind-of.ts'
import { sameBytes } from '../../util/same-bytes.ts'
import { fileDeadlineMs, maxFileBytes } from '../checkpoint/checkpoint.ts'
import {
  type CheckpointState,
  isRngState,
  type Parts,
  readState,
  unpackAt,
} from '../checkpoint/checkpoint-file.ts'
import { CommittedStates } from '../committed/committed-states.ts'

interface Report {
  readonly random: RngState
  readonly isEnding: boolean
}

const isReport = (received: unknown): received is Report =>
  isRecord(received) && typeof received.isEnding === 'boolean' && isRngState(received.random)

/** More commits than any run makes. */
const maxCommits = 2 ** 40
const isCommits = (received: unknown): received is number =>
  Number.isSafeInteger(received) && Number(received) >= 0 && Number(received) <= maxCommits

/** One of a run's commits. */
interface Commit {
  /** Counted since the run began, over all groups. */
  readonly number: number
  readonly file: Uint8Array<ArrayBuffer>
}

/** The newest state that this rank has committed or restored, as one file in its memory. */
export class RunMemory {
  readonly #states = new CommittedStates<Commit>({
    label: 'the newest commit',
    max: 1,
    maxBytes: maxFileBytes,
    stepOf: ({ number }) => number,
    pack: ({ file }) => file,
    unpack: (file, number) => ({ number, file }),
  })

  /**
   * Keeps `state` on all ranks. `isEnding`: whether this rank has heard that the group is to end. Returns whether any has, which all ranks hear at
   * the same commit; and whether the state is another than that of the commit before.
   */
  async commit(
    group: ProcessGroup,
    state: CheckpointState,
    isEnding: boolean,
  ): Promise<{ readonly isEnding: boolean; readonly isNew: boolean }> {
    const own = { random: getRngState(), isEnding }
    const received = await gatherJson('the commit', group, own, isReport, {
      deadlineMs: fileDeadlineMs,
    })
    const randoms = received.map(({ random }) => random)
    const file = save(await readState(state, randoms, 'commit'))
    if (file.length > maxFileBytes)
      throw new DataError(
        'data.malformed',
        `commit: the state has ${file.length} bytes, and can be restored up to ${maxFileBytes}. Commit less, or a smaller model.`,
      )
    const { newest } = this.#states
    const isNew = !newest || !sameBytes(newest.file, file)
    this.#states.add({ number: (newest?.number ?? 0) + 1, file })
    return { isEnding: received.some((one) => one.isEnding), isNew }
  }

  /** Brings the newest commit of any rank to all, loads it into `parts`, and returns its plain values; undefined if there is none. */
  async restore<Values extends SavedState>(
    group: ProcessGroup,
    parts: Parts,
  ): Promise<Values | undefined> {
    const own = this.#states.newest?.number ?? 0
    const options = { deadlineMs: fileDeadlineMs }
    const all = await gatherJson('the newest commit', group, own, isCommits, options)
    const held = all.map((number) => (number > 0 ? [{ step: number, hash: '' }] : []))
    await this.#states.synchronize(group, held)
    const { newest } = this.#states
    // Another number of ranks is no surprise here.
    const onDifferences = () => undefined
    return newest && unpackAt<Values>('restore', newest.file, parts, { onDifferences }, group)
  }
}
