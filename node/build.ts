import { existsSync } from 'node:fs'
import { readdir, stat } from 'node:fs/promises'
import { join } from 'node:path'
import type { Plugin } from 'vite'
import { TabringError } from '../src/util/errors.ts'
import { releaseBuild } from './release-build.ts'

const repository = join(import.meta.dirname, '..')

/** What the built pages are made of; a folder counts with all that is in it. */
const sources = [
  'src',
  'demos',
  'public',
  'docs',
  'vite.config.ts',
  'package.json',
  'node/docs.ts',
  'node/docs-pages.ts',
  'node/site-page.ts',
  'node/site-pages.ts',
  'node/vite-plugin.ts',
  'node/left-out.ts',
]

/** Newest modification in `path`, in ms since 1970; 0 when it is not there. */
async function newestMs(path: string): Promise<number> {
  if (!existsSync(path)) return 0
  const found = await stat(path)
  if (!found.isDirectory()) return found.mtimeMs
  const names = await readdir(path)
  const times = await Promise.all(names.map((name) => newestMs(join(path, name))))
  return Math.max(found.mtimeMs, ...times) // the folder's own time shows what was deleted
}

/** Whether a page was never built, or a source is newer than what was built. */
export async function isStale(
  root: string = repository,
  page = join('dist', 'index.html'),
): Promise<boolean> {
  const builtMs = await newestMs(join(root, page))
  if (builtMs === 0) return true
  const pages = (await readdir(root)).filter((name) => name.endsWith('.html'))
  const times = await Promise.all([...sources, ...pages].map((name) => newestMs(join(root, name))))
  return Math.max(...times) > builtMs
}

/** Leaves out the other pages of the configuration. */
const onlyPage = (page: string, outDir: string): Plugin => ({
  name: 'tabring:only-page',
  config({ build }) {
    Object.assign(build!, { outDir })
    Object.assign(build!.rolldownOptions!, { input: [page] })
  },
})

/**
 * Builds the pages into `dist/` when they are stale or `force` is given; returns that folder. `isTraining`: the page of a headless rank is enough,
 * which is built in half the time, into `dist-tab/`.
 *
 * errors: `config.invalid` when there is no index.html; Vite's own error when a source does not build.
 */
export async function ensureBuilt({
  force = false,
  isTraining = false,
  log,
}: {
  force?: boolean
  isTraining?: boolean
  log?: (line: string) => void
} = {}): Promise<string> {
  const all = join(repository, 'dist')
  if (!force && !(await isStale())) return all
  const output = isTraining ? join(repository, 'dist-tab') : all
  if (isTraining && !force && !(await isStale(repository, join('dist-tab', 'tab.html'))))
    return output
  if (!existsSync(join(repository, 'index.html'))) {
    throw new TabringError(
      'config.invalid',
      `build: ${join(repository, 'index.html')} does not exist. Check out the whole repository.`,
    )
  }
  log?.(isTraining ? 'Building the page of a rank…' : 'Building the pages…')
  await releaseBuild({
    root: repository,
    configFile: join(repository, 'vite.config.ts'),
    logLevel: 'warn',
    plugins: isTraining ? [onlyPage('tab.html', output)] : [],
  })
  return output
}
