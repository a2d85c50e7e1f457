import { closeSync, mkdirSync, openSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import type { StreamName } from '../tabs.ts'
import type { Streams } from './flags.ts'

const bits: Readonly<Record<StreamName, number>> = { stdout: 1, stderr: 2 }

/** Returns whether `streams` has this one for a local rank. */
const includes = (streams: Streams, localRank: number, stream: StreamName) => {
  const bit = typeof streams === 'number' ? streams : (streams[localRank] ?? 0)
  return (bit & bits[stream]) !== 0
}

/** The error for a path of `--log-dir`. */
export const unwritable = (path: string, thrown: unknown): TabringError =>
  new TabringError(
    'file.unwritable',
    `--log-dir: cannot write to ${path}: ${messageOf(thrown)}. Choose another folder.`,
    { cause: thrown },
  )

/**
 * What ranks say, in files: `DIR/RANK/stdout.log` and `stderr.log`, created by each run and continued by its restarts.
 *
 * `tee`: which streams go there too; `redirects`: which go there alone. With neither, all go there too.
 */
export class LogFiles {
  readonly #files = new Map<string, number>()
  /** Why lines are missing in the files. */
  problem: string | undefined

  constructor(
    readonly folder: string,
    private readonly tee?: Streams,
    private readonly redirects?: Streams,
    private readonly note: (line: string) => void = () => undefined,
  ) {}

  /** Writes a line where it belongs; returns whether it is to be shown as well; what cannot be written is shown. errors: `file.unwritable`, for a file that cannot be made. */
  write(rank: number, localRank: number, stream: StreamName, text: string): boolean {
    const isAlone = this.redirects !== undefined && includes(this.redirects, localRank, stream)
    const isBoth =
      this.tee === undefined ? this.redirects === undefined : includes(this.tee, localRank, stream)
    const isWritten = (isAlone || isBoth) && this.#write(rank, stream, text)
    return isBoth || !isAlone || !isWritten
  }

  /** Returns whether it could. A full disk ends no training. */
  #write(rank: number, stream: StreamName, text: string): boolean {
    const file = this.#file(rank, stream)
    try {
      writeSync(file, `${stripVTControlCharacters(text)}\n`)
      return true
    } catch (thrown) {
      if (this.problem === undefined) {
        this.problem = messageOf(thrown)
        this.note(`--log-dir: lines are missing in the files from now on: ${this.problem}`)
      }
      return false
    }
  }

  #file(rank: number, stream: StreamName): number {
    const folder = join(this.folder, String(rank))
    const path = join(folder, `${stream}.log`)
    const known = this.#files.get(path)
    if (known !== undefined) return known
    try {
      mkdirSync(folder, { recursive: true })
      const file = openSync(path, 'w')
      this.#files.set(path, file)
      return file
    } catch (thrown) {
      throw unwritable(path, thrown)
    }
  }

  /** Makes the files of these ranks, so that they are there, and a folder that cannot be written ends the run before it begins. */
  open(ranks: readonly number[]): void {
    for (const rank of ranks) {
      this.#file(rank, 'stdout')
      this.#file(rank, 'stderr')
    }
  }

  close(): void {
    for (const file of this.#files.values()) closeSync(file)
    this.#files.clear()
  }
}
