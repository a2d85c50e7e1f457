import { readFile } from 'node:fs/promises'
import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { launchBrowser } from './launch-browser.ts'

// speedscope, a viewer of traces that is not ours: opens a file as its user would, and returns what it read.

/** A track as speedscope exports it: an opening and a closing event for each span. */
export interface Profile {
  readonly name: string
  readonly unit: string
  readonly events: readonly {
    readonly type: 'O' | 'C'
    readonly frame: number
    readonly at: number
  }[]
}

export interface Reading {
  readonly profiles: readonly Profile[]
  /** Names of spans with their arguments, by the `frame` of events. */
  readonly frames: readonly { readonly name: string }[]
  /** What it had to mend or refused. */
  readonly complaints: readonly string[]
}

const page = () => {
  const folder = dirname(createRequire(import.meta.url).resolve('speedscope/package.json'))
  return pathToFileURL(join(folder, 'dist', 'release', 'index.html')).href
}

/** Drivers warn on the console as well; they are not asked. */
const isOfDriver = (text: string) => text.includes('GL Driver Message')

export async function readWithSpeedscope(file: string): Promise<Reading> {
  const browser = await launchBrowser()
  try {
    const tab = await browser.newPage()
    const complaints: string[] = []
    tab.on('console', (message) => {
      const isWarning = message.type() === 'warning' || message.type() === 'error'
      if (isWarning && !isOfDriver(message.text())) complaints.push(message.text())
    })
    tab.on('pageerror', (error) => complaints.push(error.message))
    const refusal = new Promise<null>((resolve) => {
      tab.on('dialog', (dialog) => {
        complaints.push(dialog.message())
        resolve(null)
        void dialog.dismiss()
      })
    })
    await tab.goto(page())
    await tab.setInputFiles('input[type=file]', file)
    const exportButton = tab.getByText('Export')
    const isRead = await Promise.race([
      exportButton.waitFor({ timeout: 30_000 }).then(() => true),
      refusal,
    ])
    if (!isRead) return { profiles: [], frames: [], complaints }
    const [download] = await Promise.all([tab.waitForEvent('download'), exportButton.click()])
    const { shared, profiles } = JSON.parse(await readFile(await download.path(), 'utf8'))
    return { profiles, frames: shared.frames, complaints }
  } finally {
    await browser.close()
  }
}
