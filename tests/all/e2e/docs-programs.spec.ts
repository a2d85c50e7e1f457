import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { encode } from 'fast-png'
import { expect, test } from 'vitest'
import { docsPrograms } from '../../support/docs-programs.ts'
import { folder, start, useLauncherFolder, write } from '../../support/launcher-folder.ts'
import { userPages } from '../../support/markdown.ts'

// The programs of the documentation run in tabs as they stand.

useLauncherFolder()

/** Red and blue pictures, in a folder for each class. */
async function writePhotos(): Promise<void> {
  for (const [name, channel] of [
    ['red', 0],
    ['blue', 2],
  ] as const) {
    await mkdir(join(folder, 'photos', name), { recursive: true })
    for (let i = 0; i < 16; i++) {
      const data = Uint8Array.from({ length: 24 * 24 * 3 }, (_, at) => {
        const noise = (at * (i + 7)) % 60
        return at % 3 === channel ? 255 - noise : noise
      })
      const png = encode({ width: 24, height: 24, data, channels: 3 })
      await writeFile(join(folder, 'photos', name, `${i}.png`), png)
    }
  }
}

const blocks = userPages().flatMap((page) => page.blocks)

test.each(docsPrograms)('$page: $files.0 runs, and prints what it should', async (program) => {
  await writePhotos()
  for (const name of program.files) {
    const block = blocks.find(({ page, file }) => page === program.page && file === name)
    await write(name, block!.text)
  }
  const run = start('run', ['--adapter=software', ...program.args, program.files[0]])
  expect(await run.ended, run.told.stderr).toBe(0)
  expect(run.told.stdout).toMatch(program.prints)
})
