import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { mkdir, readdir, rename } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { inject, vi } from 'vitest'
import { repository } from './repository.ts'

/** Returns the path of the library's archive. The first spec of a run that asks has `npm pack` build and pack it; others wait. */
export async function packLibrary(): Promise<string> {
  const folder = inject('packFolder')
  const [unfinished, finished] = ['unfinished', 'finished'].map((name) => join(folder, name))
  const isFirst = (await mkdir(join(folder, 'taken'), { recursive: true })) !== undefined
  if (isFirst) {
    await mkdir(unfinished)
    try {
      const args = ['pack', '--pack-destination', unfinished]
      await promisify(execFile)('npm', args, { cwd: repository })
    } finally {
      await rename(unfinished, finished)
    }
  } else {
    await vi.waitUntil(() => existsSync(finished), { timeout: 120_000, interval: 100 })
  }
  const archive = (await readdir(finished)).find((name) => name.endsWith('.tgz'))
  if (!archive) throw new Error('npm pack failed. See the spec that ran it.')
  return join(finished, archive)
}
