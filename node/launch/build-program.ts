import { existsSync, statSync } from 'node:fs'
import { mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import type { Plugin } from 'vite'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { importTool } from './import-tool.ts'
import { nearestUp } from './nearest-up.ts'
import { library, rankConsole, rankPage } from './own-files.ts'

export interface BuiltProgram {
  /** The folder with rank.html. */
  root: string
  /** Names that the program's own files read from `process.env`. */
  reads: ReadonlySet<string>
  remove(): Promise<void>
}

const readOfVariable = /\bprocess\.env(?:\.(\w+)|\[['"](\w+)['"]\])/g
const programName = 'virtual:tabring-program'

/** The user's module by the name that the rank's page imports; `tabring` where the project has not installed it. */
function programPlugin(module: string, reads: Set<string>): Plugin {
  return {
    name: 'tabring-program',
    enforce: 'pre',
    resolveId: (name) => (name === programName ? module : undefined),
    transform(code, id) {
      if (id.includes('/node_modules/')) return
      for (const [, name, quoted] of code.matchAll(readOfVariable)) reads.add(name ?? quoted)
    },
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

/** Puts the console before a page or worker; the lines of the module stay where they are. */
function consolePlugin(): Plugin {
  const entries = new Set<string>()
  return {
    name: 'tabring-console',
    enforce: 'pre',
    async resolveId(name, importer, options) {
      if (!options.isEntry) return undefined
      const found = await this.resolve(name, importer, { ...options, skipSelf: true })
      if (found) entries.add(found.id)
      return found
    },
    transform(code, id) {
      if (!entries.has(id)) return undefined
      return { code: `import ${JSON.stringify(rankConsole)};${code}`, map: null }
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
 * Gives a folder the other name `link`, since Vite takes a `#` or `?` in a path for the end of a file's name. Packages above the
 * folder are found there too.
 */
async function linkFolder(folder: string, link: string): Promise<void> {
  // A junction needs no rights on Windows.
  await symlink(folder, link, 'junction')
  const packages = nearestUp(dirname(folder), 'node_modules')
  if (packages) await symlink(packages, join(dirname(link), 'node_modules'), 'junction')
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
  const reads = new Set<string>()
  const { build, createLogger } = await importTool<typeof import('vite')>('vite')
  const logger = createLogger('warn')
  // What it says comes with the exception.
  logger.error = () => undefined
  const temporary = await mkdtemp(join(tmpdir(), 'tabring-run-'))
  const root = join(temporary, 'pages')
  const remove = () => rm(temporary, { recursive: true, force: true })
  const link = join(temporary, 'source')
  const linked = /^.*[#?][^/\\]*(?=[/\\])/.exec(path)?.[0]
  try {
    if (linked !== undefined) await linkFolder(linked, link)
    const plain = (name: string) =>
      linked !== undefined && `${name}${sep}`.startsWith(linked + sep)
        ? link + name.slice(linked.length)
        : name
    await build({
      root: plain(folder),
      configFile: false,
      logLevel: 'warn',
      customLogger: logger,
      base: './',
      publicDir: false,
      // Set by the module of `rankConsole`; Vite's own would be empty.
      define: { 'process.env': '__tabringProcessEnv' },
      plugins: [programPlugin(plain(path), reads), libraryPlugin(), consolePlugin()],
      resolve: { tsconfigPaths: true, preserveSymlinks: linked !== undefined },
      worker: {
        format: 'es',
        plugins: () => [libraryPlugin(), consolePlugin()],
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
    return { root, reads, remove }
  } catch (thrown) {
    await remove()
    const words = process.stderr.isTTY
      ? messageOf(thrown)
      : stripVTControlCharacters(messageOf(thrown))
    const [before, after] = [link, linked ?? link].map((name) => relative(process.cwd(), name))
    const told = words.replaceAll(before, after || '.')
    throw new TabringError('config.invalid', `module: build failed: ${told.trim()}`, {
      cause: thrown,
    })
  }
}
