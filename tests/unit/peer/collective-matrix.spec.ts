import { VirtualEnv } from '../../../src/util/virtual-env.ts'
import { collectiveMatrix, type MatrixWorld } from '../../support/collective-matrix.ts'
import { memoryMesh } from '../../support/memory-mesh.ts'
import { memoryRing } from '../../support/memory-ring.ts'

// On 1 to 9 ranks, over links in memory whose messages take a random time.

const worldOf = (env: VirtualEnv, groups: MatrixWorld['groups']): MatrixWorld => ({
  groups,
  until: (all) => env.until(all),
})
const edge = (env: VirtualEnv) => () => ({
  delayMs: () => env.chance() * 9,
  maxMessageBytes: 1024,
})

collectiveMatrix({
  sizes: Array.from({ length: 9 }, (_, index) => index + 1),
  links: {
    ring: (size, seed) => {
      const env = new VirtualEnv(seed)
      return worldOf(env, memoryRing(env, size, edge(env)).groups)
    },
    all: (size, seed) => {
      const env = new VirtualEnv(seed)
      return worldOf(env, memoryMesh(env, size, edge(env)))
    },
  },
})
