import type { InlineConfig } from 'vite'

/**
 * Vite's build of what users get, whoever asks for it. Under `NODE_ENV=test`, which a test runner sets, Vite would compile JSX for development:
 * pages that are larger and slower than those that are tested for.
 */
export async function releaseBuild(config: InlineConfig): Promise<void> {
  // A slow import, which pages that are built do without.
  const { build } = await import('vite')
  const before = process.env.NODE_ENV
  process.env.NODE_ENV = 'production'
  try {
    await build(config)
  } finally {
    if (before === undefined) delete process.env.NODE_ENV
    else process.env.NODE_ENV = before
  }
}
