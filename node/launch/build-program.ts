import { existsSync, statSync } from 'node:fs'
import { mkdir, mkdtemp, rm, symlink, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join, relative, resolve, sep } from 'node:path'
import { stripVTControlCharacters } from 'node:util'
import type { Plugin } from 'vite'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { importTool } from './import-tool.ts'
import { nearestUp } from './nearest-up.ts'
import { entryPoint, library, rankConsole, rankPage } from './own-files.ts'

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

function libraryPlugin(library: string): Plugin {
  return {
    name: 'tabring-library',
    enforce: 'pre',
    async resolveId(name, importer) {
      const own = entryPoint(name, library)
      if (own === undefined) return undefined
      const found = await this.resolve(name, importer, { skipSelf: true })
      return found ?? own
    },
  }
}

/** Puts the console before a page or worker; the lines of the module stay where they are. */
function consolePlugin(rankConsole: string): Plugin {
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

/** Other names, below a temporary folder, of folders with a `#` or `?`, which Vite takes for the end of a file's name. */
class LinkedFolders {
  readonly #links = new Map<string, string>()

  constructor(private readonly temporary: string) {}

  get size(): number {
    return this.#links.size
  }

  /** The path of a file or folder by such a name. Packages above the linked folder are found there too. */
  async plain(path: string): Promise<string> {
    const folder = /^.*[#?][^/\\]*(?=[/\\])/.exec(path)?.[0]
    if (folder === undefined) return path
    const link = this.#links.get(folder) ?? join(this.temporary, `${this.size}`, 'source')
    if (!this.#links.has(folder)) {
      this.#links.set(folder, link)
      await mkdir(dirname(link))
      // A junction needs no rights on Windows.
      await symlink(folder, link, 'junction')
      const packages = nearestUp(dirname(folder), 'node_modules')
      if (packages) await symlink(packages, join(dirname(link), 'node_modules'), 'junction')
    }
    return link + path.slice(folder.length)
  }

  /** Text of an error with the folders' own names, relative to the process's folder. */
  named(text: string): string {
    const shown = (path: string) => relative(process.cwd(), path)
    return [...this.#links].reduce(
      (named, [folder, link]) => named.replaceAll(shown(link), shown(folder) || '.'),
      text,
    )
  }
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
  const links = new LinkedFolders(temporary)
  try {
    const main = await links.plain(path)
    const [start, input, ownConsole, ownLibrary] = await Promise.all(
      [folder + sep, rankPage, rankConsole, library].map((name) => links.plain(name)),
    )
    await build({
      root: start,
      configFile: false,
      logLevel: 'warn',
      customLogger: logger,
      base: './',
      publicDir: false,
      // Set by the module of `rankConsole`; Vite's own would be empty.
      define: { 'process.env': '__tabringProcessEnv' },
      plugins: [programPlugin(main, reads), libraryPlugin(ownLibrary), consolePlugin(ownConsole)],
      resolve: { tsconfigPaths: true, preserveSymlinks: links.size > 0 },
      worker: {
        format: 'es',
        plugins: () => [libraryPlugin(ownLibrary), consolePlugin(ownConsole)],
        // Without the folder, places in a worker's source map are relative to another one.
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
          input: { rank: input },
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
    throw new TabringError('config.invalid', `module: build failed: ${links.named(words).trim()}`, {
      cause: thrown,
    })
  }
}
