import { randomBytes } from 'node:crypto'
import { type FileHandle, open, rename, rm, writeFile } from 'node:fs/promises'
import { dirname } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import * as v from 'valibot'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { makeFolder } from '../make-folder.ts'

/** What the leader leaves for the other launchers in a file that all machines see. */
const rendezvousSchema = v.object({
  host: v.string(),
  port: v.number(),
  key: v.string(),
  pin: v.pipe(
    v.string(),
    v.custom<`sha256/${string}`>((text) => String(text).startsWith('sha256/')),
  ),
})
export type RendezvousRecord = v.InferOutput<typeof rendezvousSchema>

const pollEveryMs = 500

/** Writes it, for its owner's eyes only, whole or not at all; returns how to take it away. errors: `file.unwritable`. */
export async function writeRendezvous(
  path: string,
  record: RendezvousRecord,
): Promise<() => Promise<void>> {
  // A name that nobody can have taken before, in a folder that others may write to.
  const temporary = `${path}.${randomBytes(8).toString('hex')}.tmp`
  try {
    await makeFolder(dirname(path), 0o700)
    await writeFile(temporary, JSON.stringify(record), { mode: 0o600, flag: 'wx' })
    await rename(temporary, path)
  } catch (thrown) {
    throw new TabringError(
      'file.unwritable',
      `launcher: cannot write ${path} for the other launchers: ${messageOf(thrown)}. Name another file with --rdzv-conf file=PATH, or set TABRING_ROOM_KEY for all of them.`,
      { cause: thrown },
    )
  }
  return () => rm(path, { force: true })
}

/** What the leader's file says now; null where there is none, or something else. errors: `config.invalid` for a file of another user. */
export async function pollRendezvous(path: string): Promise<RendezvousRecord | null> {
  let file: FileHandle
  try {
    file = await open(path)
  } catch {
    return null
  }
  try {
    const { uid } = await file.stat()
    const own = process.getuid?.()
    if (own !== undefined && uid !== own) {
      throw new TabringError(
        'config.invalid',
        `launcher: ${path} belongs to user ${uid}, who could redirect the run, not to you (${own}). Name another file with --rdzv-conf file=PATH.`,
      )
    }
    const parsed = v.safeParse(rendezvousSchema, fromJson(await file.readFile('utf8')))
    return parsed.success ? parsed.output : null
  } finally {
    await file.close()
  }
}

/** Waits for the leader's file and returns it. errors: `peer.timeout`; as lookAtMeeting; the reason of `signal`. */
export async function readRendezvous(
  path: string,
  timeoutMs: number,
  signal: AbortSignal,
): Promise<RendezvousRecord> {
  const untilMs = performance.now() + timeoutMs
  for (;;) {
    signal.throwIfAborted()
    const record = await pollRendezvous(path)
    if (record) return record
    if (performance.now() > untilMs) {
      throw new TabringError(
        'peer.timeout',
        `launcher: the launcher of rank 0 did not write ${path} within ${timeoutMs / 1000} s. Does this machine share that folder? If not, pass TABRING_ROOM_KEY and --master-addr to all launchers.`,
      )
    }
    await sleep(pollEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

function fromJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return null // not ours
  }
}
