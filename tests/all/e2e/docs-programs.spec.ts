import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { encode } from 'fast-png'
import { describe, expect, test } from 'vitest'
import { docsPrograms } from '../../support/docs-programs.ts'
import { folder, start, useLauncherFolder, write } from '../../support/launcher-folder.ts'
import { type CodeBlock, userPages } from '../../support/markdown.ts'
import { useTrainFolder } from '../../support/train-folder.ts'

// The programs and commands of the documentation run as they stand, and print what the pages show.

const blocks = userPages().flatMap((page) => page.blocks)

/** The output that a page shows after a block, unless another file begins before it. */
function shownAfter(block: CodeBlock): string[] {
  const later = blocks.slice(blocks.indexOf(block) + 1).filter(({ page }) => page === block.page)
  const next = later.find(({ language, file }) => language === 'text' || file !== null)
  return next?.language === 'text' ? linesOf(next) : []
}

/** Without the mark for lines that are left out. */
const linesOf = ({ text }: CodeBlock): string[] =>
  text.split('\n').filter((line) => line !== '' && line !== '…')

/** A line as a pattern: `varies` may differ from run to run. */
function patternOf(line: string, varies: RegExp): RegExp {
  const escaped = line.replaceAll(/[.*+?^${}()|[\]\\]/g, '\\$&')
  return new RegExp(`^${escaped.replaceAll(varies, '[\\d.,]+')}$`, 'm')
}
const anyNumber = /\d[\d,]*(?:\\\.\d+)?/g

describe('tabring run', () => {
  useLauncherFolder()

  test.each(docsPrograms)('$page: $files.0', async (program) => {
    await writePhotos()
    const found = program.files.map(
      (name) => blocks.find(({ page, file }) => page === program.page && file === name)!,
    )
    for (const [i, { text }] of found.entries()) await write(program.files[i], text)
    const run = start('run', ['--adapter=software', ...program.args, program.files[0]])
    expect(await run.ended, run.received.stderr).toBe(0)
    expect(run.received.stdout).toMatch(program.prints)
    for (const line of shownAfter(found[0]))
      expect(run.received.stdout).toMatch(patternOf(line, anyNumber))
  })

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
})

describe('npm run train', () => {
  const trained = useTrainFolder()

  test('the command of README.md and docs/get-started.md prints what they show', async () => {
    const command = 'npm run train -- --nproc-per-node 2 --epochs 1'
    const outFile = join(trained.path, 'model.safetensors')
    const argv = [...command.split(' ').slice(4), '--out', outFile, '--adapter', 'software']
    const run = trained.start({}, ...argv)
    expect(await run.ended, run.received.stderr).toBe(0)
    const shownBy = (page: string) => {
      const block = blocks.find((one) => one.page === page && one.text.startsWith(command))!
      return shownAfter(block)
    }
    const readme = shownBy('README.md')
    expect(readme).toHaveLength(2)
    for (const line of readme)
      expect(run.received.stdout).toMatch(patternOf(line, /\d[\d,]*(?= samples\/s)/g))
    // What depends on the machine: which adapter it has, where the file lies.
    const isFixed = (line: string) => !/^(?:train:|weights)/.test(line)
    const lines = shownBy('docs/get-started.md').filter(isFixed)
    expect(lines).toHaveLength(5)
    for (const line of lines) expect(run.received.stdout).toMatch(patternOf(line, anyNumber))
    expect(run.received.stdout).toContain(`weights        ${outFile}`)
  })
})
