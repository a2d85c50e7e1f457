import { spawn } from 'node:child_process'
import { existsSync, readFileSync, statSync } from 'node:fs'
import { mkdtemp, rm, writeFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join, parse, resolve, sep } from 'node:path'
import { messageOf, TabringError } from '../../src/util/errors.ts'
import { makeFolder } from '../make-folder.ts'
import { nearestUp } from './nearest-up.ts'
import { library, libraryPaths } from './own-files.ts'

export interface CheckOptions {
  /** Ends the check: its process is killed, and `checkTypes` throws the signal's reason. */
  signal: AbortSignal
  /** Takes a line for the user. */
  note(line: string): void
  /** Paths in errors are relative to this folder. */
  folder?: string
}

/** What `tsc --showConfig` prints of a tsconfig.json, as far as it matters here. */
interface Config {
  compilerOptions?: {
    checkJs?: boolean
    target?: string
    useDefineForClassFields?: boolean
    paths?: Record<string, string[]>
  }
  files?: string[]
  references?: { path: string }[]
}

/** Of one report. units: lines. */
const maxLines = 20

/**
 * Whatever the project builds otherwise, here nothing is written, and Vite resolves imports and builds an ES module for new browsers. Names that are not used are no reason not to run.
 */
const forced = {
  noEmit: true,
  composite: false,
  incremental: false,
  tsBuildInfoFile: null,
  declaration: false,
  declarationMap: false,
  emitDeclarationOnly: false,
  isolatedDeclarations: false,
  skipLibCheck: true,
  target: 'ESNext',
  module: 'ESNext',
  moduleResolution: 'bundler',
  allowImportingTsExtensions: true,
  noUnusedLocals: false,
  noUnusedParameters: false,
}

/**
 * Checks the types of the module at `path` and of what it imports, with the project's own TypeScript and its nearest tsconfig.json.
 *
 * Packages are not checked, nor is JavaScript without `checkJs`. Without TypeScript, or where the check cannot be made, a note says so.
 * errors: `config.invalid` with the place of each type error; the reason of `signal`.
 */
export async function checkTypes(path: string, options: CheckOptions): Promise<void> {
  const { signal, note, folder = process.cwd() } = options
  const isScript = /\.[cm]?jsx?$/.test(path)
  const nearest = nearestUp(dirname(path), 'tsconfig.json')
  if (isScript && !nearest) return
  const compiler = findCompiler(path)
  if (!compiler) {
    const why = 'types are not checked, since the package typescript is not installed.'
    if (!isScript) note(`${why} Run: npm install --save-dev typescript`)
    return
  }
  const run = (...args: string[]) => runCompiler([compiler, ...args], folder, signal)
  const found = nearest ? await configOf(path, nearest, run) : null
  if (isScript && !found?.config.compilerOptions?.checkJs) return
  const parent = await cacheFolder(dirname(path)).catch((thrown) => {
    note(`types are not checked: ${messageOf(thrown)}`)
  })
  if (!parent) return
  try {
    const own = join(parent, 'tsconfig.json')
    await writeFile(own, JSON.stringify(ownConfig(path, found)))
    const { code, text } = await run('--noEmit', '--pretty', 'false', '-p', own)
    if (code === 0) return
    const { errors, others, total } = readDiagnostics(text, folder)
    if (errors.length > 0) throw new TabringError('config.invalid', reportOf(errors))
    if (others.length > 0) note(`types: ${others[0]}`)
    else if (total === 0) note(`types are not checked: tsc ended with exit code ${code}`)
  } finally {
    await rm(parent, { recursive: true, force: true })
  }
}

/** The package.json of a package as the module at `path` would import it. */
function findPackage(path: string, name: string): string | null {
  try {
    return createRequire(path).resolve(`${name}/package.json`)
  } catch {
    return null
  }
}

function findCompiler(path: string): string | null {
  const found = findPackage(path, 'typescript')
  return found && join(dirname(found), JSON.parse(readFileSync(found, 'utf8')).bin.tsc)
}

/** In the project, so that the types of its packages are found. errors: as from the file system, where it is not writable. */
async function cacheFolder(folder: string): Promise<string> {
  const packages = nearestUp(folder, 'node_modules') ?? join(folder, 'node_modules')
  const cache = join(packages, '.cache', 'tabring')
  await makeFolder(cache)
  return mkdtemp(join(cache, 'types-'))
}

type Run = (...args: string[]) => Promise<{ code: number | null; text: string }>

interface FoundConfig {
  path: string
  config: Config
}

/** The nearest configuration; where that one only refers to others, the one that has the module among its files. */
async function configOf(module: string, nearest: string, run: Run): Promise<FoundConfig> {
  const read = async (path: string): Promise<FoundConfig> => {
    const { text } = await run('--showConfig', '-p', path)
    try {
      return { path, config: JSON.parse(text) }
    } catch {
      // What is wrong in it is said by the check.
      return { path, config: {} }
    }
  }
  const first = await read(nearest)
  const hasModule = ({ path, config }: FoundConfig) =>
    config.files?.some((file) => resolve(dirname(path), file) === module)
  if (hasModule(first)) return first
  for (const reference of first.config.references ?? []) {
    const path = resolve(dirname(nearest), reference.path)
    if (!existsSync(path)) continue
    const other = await read(statSync(path).isDirectory() ? join(path, 'tsconfig.json') : path)
    if (hasModule(other)) return other
  }
  return first
}

/** Of a configuration whose class fields are assigned, as Vite does it too, unless it says otherwise. */
const oldTarget = /^es(3|5|6|201\d|202[01])$/i

/** The configuration of one check: the project's own, or strict and as a tab runs it. */
function ownConfig(module: string, found: FoundConfig | null): object {
  const { path, config } = found ?? { path: module, config: {} as Config }
  const base = dirname(path)
  const {
    target = '',
    paths = {},
    useDefineForClassFields = !oldTarget.test(target),
  } = config.compilerOptions ?? {}
  const isInstalled = findPackage(module, 'tabring') !== null || 'tabring' in paths
  const absolute = Object.entries(paths).map(([name, places]) => [
    name,
    places.map((place) => resolve(base, place)),
  ])
  const declarations = (config.files ?? []).filter((file) => /\.d\.[cm]?ts$/.test(file))
  const packages = ['vite', '@webgpu/types'].filter((name) => findPackage(module, name))
  const defaults = {
    strict: true,
    lib: ['ESNext', 'DOM', 'DOM.Iterable'],
    jsx: 'preserve',
    types: packages.map((name) => (name === 'vite' ? 'vite/client' : name)),
  }
  return {
    ...(found && { extends: path }),
    files: [module, ...declarations.map((file) => resolve(base, file))],
    include: [],
    references: [],
    compilerOptions: {
      ...(found ? {} : defaults),
      ...forced,
      useDefineForClassFields,
      // Its default is the folder of this very file.
      rootDir: parse(module).root,
      ...(!isInstalled && {
        paths: { ...Object.fromEntries(absolute), ...libraryPaths },
      }),
    },
  }
}

/** Runs Node with these arguments. errors: the reason of `signal`, when the process has ended. */
function runCompiler(args: readonly string[], cwd: string, signal: AbortSignal): ReturnType<Run> {
  signal.throwIfAborted()
  return new Promise((done, failed) => {
    // A group: TypeScript 7 may start a process below this one.
    const isGroup = process.platform !== 'win32'
    const child = spawn(process.execPath, args, {
      cwd,
      stdio: ['ignore', 'pipe', 'ignore'],
      detached: isGroup,
    })
    const kill = () => {
      try {
        if (isGroup && child.pid !== undefined) process.kill(-child.pid, 'SIGKILL')
        else child.kill('SIGKILL')
      } catch {
        // It has ended already.
      }
    }
    signal.addEventListener('abort', kill)
    let text = ''
    child.stdout.setEncoding('utf8').on('data', (part: string) => {
      text += part
    })
    child.on('error', failed)
    child.on('close', (code) => {
      signal.removeEventListener('abort', kill)
      if (signal.aborted) failed(signal.reason)
      else done({ code, text })
    })
  })
}

interface Diagnostics {
  /** In files of the program: place, message and what explains it. */
  errors: string[]
  /** About the configuration. */
  others: string[]
  /** How many there are, those of packages too. */
  total: number
}

function readDiagnostics(text: string, folder: string): Diagnostics {
  // A line with a space in front explains the one above.
  const all = text.split(/\r?\n(?=\S)/).filter((one) => /error TS\d+: /.test(one))
  const errors: string[] = []
  const others: string[] = []
  for (const one of all) {
    const form = /^(.+)\((\d+),(\d+)\): error (TS\d+): (.*)$/s.exec(one.trimEnd())
    if (!form || form[1].endsWith('.json')) others.push(one.split('\n')[0])
    else if (isOwn(resolve(folder, form[1]))) {
      const [, file, line, column, code, message] = form
      errors.push(`${file}:${line}:${column}: ${code}: ${message}`)
    }
  }
  return { errors, others, total: all.length }
}

/** Returns whether a file is the user's: neither of a package nor of the library's sources. */
const isOwn = (path: string) =>
  !path.includes(`${sep}node_modules${sep}`) && !path.startsWith(dirname(library) + sep)

function reportOf(errors: readonly string[]): string {
  const lines: string[] = []
  let shown = 0
  for (const error of errors) {
    const more = error.split(/\r?\n/)
    if (shown > 0 && lines.length + more.length > maxLines) break
    lines.push(...more.slice(0, maxLines))
    shown++
  }
  if (shown < errors.length) lines.push(`and ${errors.length - shown} more`)
  const count = errors.length === 1 ? 'a type error' : `${errors.length} type errors`
  return `module: ${count}:\n${lines.join('\n')}\nCorrect the program, or run it anyway with --no-check.`
}
