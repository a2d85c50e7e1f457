import { existsSync, readdirSync } from 'node:fs'

/** Where the Vulkan loader looks for drivers. */
const driverFolders = ['/usr/share', '/usr/local/share', '/etc'].map((top) => `${top}/vulkan/icd.d`)

const namesIn = (folder: string): string[] => (existsSync(folder) ? readdirSync(folder) : [])

/** lvp: lavapipe, which computes on the CPU. */
const isLavapipe = (name: string) => name.startsWith('lvp')

const drivers = (list: (folder: string) => string[]) =>
  driverFolders.flatMap((folder) =>
    list(folder)
      .filter((name) => name.endsWith('.json'))
      .map((name) => ({ name, path: `${folder}/${name}` })),
  )

/** Whether Linux shows this process a GPU and has a Vulkan driver for it; Mesa installs drivers for GPUs that are not there, too. */
export function hasVulkanGpu(environment: NodeJS.ProcessEnv, list = namesIn): boolean {
  const isThere =
    list('/dev').some((name) => /^nvidia\d/.test(name)) ||
    list('/dev/dri').some((name) => name.startsWith('renderD'))
  const isNamed = Boolean(environment.VK_DRIVER_FILES || environment.VK_ICD_FILENAMES)
  return isThere && (isNamed || drivers(list).some(({ name }) => !isLavapipe(name)))
}

/** What makes the Vulkan loader find no driver but lavapipe; undefined where there is none. */
export function lavapipeOnly(list = namesIn): { VK_DRIVER_FILES: string } | undefined {
  const paths = drivers(list).flatMap(({ name, path }) => (isLavapipe(name) ? [path] : []))
  return paths.length > 0 ? { VK_DRIVER_FILES: paths.join(':') } : undefined
}
