import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { repository } from './repository.ts'

/** Builds and packs the library as `npm pack` does; returns the archive's path in `folder`, which has no other. */
export async function packLibrary(folder: string): Promise<string> {
  await promisify(execFile)('npm', ['pack', '--pack-destination', folder], { cwd: repository })
  const [archive] = (await readdir(folder)).filter((name) => name.endsWith('.tgz'))
  return join(folder, archive)
}
