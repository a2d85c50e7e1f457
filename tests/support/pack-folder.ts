import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestProject } from 'vitest/node'

declare module 'vitest' {
  export interface ProvidedContext {
    packFolder: string
  }
}

/** Gives each run its own folder for what packLibrary makes. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const provide = async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tabring-pack-'))
    project.provide('packFolder', folder)
    return folder
  }
  const folders = [await provide()]
  // In watch mode a change may have made the pack stale.
  project.onTestsRerun(async () => void folders.push(await provide()))
  return async () => {
    for (const folder of folders) await rm(folder, { recursive: true, force: true })
  }
}
