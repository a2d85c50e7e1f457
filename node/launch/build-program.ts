import { existsSync, statSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import type { Plugin } from 'vite'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { importTool } from './import-tool.ts'
import { library, rankPage } from './own-files.ts'

export interface BuiltProgram {
  /** The folder with rank.html. */
  root: string
  remove(): Promise<void>
}

const programName = 'virtual:tabring-program'

/** The user's module by the name that the rank's page imports; `tabring` where the project has not installed it. */
function programPlugin(module: string): Plugin {
  return {
    name: 'tabring-program',
    enforce: 'pre',
    resolveId: (name) => (name === programName ? module : undefined),
  }
}

function libraryPlugin(): Plugin {
  return {
    name: 'tabring-library',
    enforce: 'pre',
    async resolveId(name, importer) {
      if (name !== 'tabring') return undefined
      const found = await this.resolve(name, importer, { skipSelf: true })
      return found ?? library
    },
  }
}

/** That a build took long is not the user's to mend. */
const checks = { bundlerTimings: false }

const page = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <title>tabring rank</title>
    <link rel="icon" href="data:," />
    <script type="module" src="./rank.js"></script>
  </head>
  <body></body>
</html>
`

/** The path of the user's module. errors: `config.invalid` when there is no such file. */
export function findModule(module: string, folder: string = process.cwd()): string {
  const path = resolve(folder, module)
  if (existsSync(path) && statSync(path).isFile()) return path
  const problem = existsSync(path) ? 'is not a file' : 'does not exist'
  throw new TabringError(
    'config.invalid',
    `module: ${module} ${problem} in ${folder}. Put the path of your training module after the flags.`,
  )
}

/**
 * Builds the page that runs the module at `path`, into a temporary folder.
 *
 * A build, not Vite's dev server: that one reloads a page when it comes upon a package late, in the middle of a run, and serves
 * each of N tabs each file alone. Imports are found from the module's own place; check-types.ts checks types.
 * errors: `config.invalid` with Vite's words and the place in the source; `data.missing` without Vite.
 */
export async function buildProgram(
  path: string,
  folder: string = process.cwd(),
): Promise<BuiltProgram> {
  const { build, createLogger } = await importTool<typeof import('vite')>('vite')
  const logger = createLogger('warn')
  // What it says comes with the exception.
  logger.error = () => undefined
  const root = await mkdtemp(join(tmpdir(), 'tabring-run-'))
  const remove = () => rm(root, { recursive: true, force: true })
  try {
    await build({
      root: folder,
      configFile: false,
      logLevel: 'warn',
      customLogger: logger,
      base: './',
      publicDir: false,
      plugins: [programPlugin(path), libraryPlugin()],
      resolve: { tsconfigPaths: true },
      worker: {
        format: 'es',
        plugins: () => [libraryPlugin()],
        // Without the folder, places in a worker's source map are told from another one.
        rolldownOptions: { checks, output: { keepNames: true, dir: root } },
      },
      build: {
        outDir: root,
        emptyOutDir: true,
        target: 'es2023',
        minify: false,
        // Stacks name the user's lines.
        sourcemap: true,
        modulePreload: false,
        reportCompressedSize: false,
        chunkSizeWarningLimit: Number.POSITIVE_INFINITY,
        rolldownOptions: {
          checks,
          input: { rank: rankPage },
          output: { keepNames: true, entryFileNames: '[name].js' },
        },
      },
    })
    await writeFile(join(root, 'rank.html'), page)
    return { root, remove }
  } catch (thrown) {
    await remove()
    const words = process.stderr.isTTY
      ? messageOf(thrown)
      : stripVTControlCharacters(messageOf(thrown))
    throw new TabringError('config.invalid', `module: build failed: ${words.trim()}`, {
      cause: thrown,
    })
  }
}
