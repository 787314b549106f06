// Builds the app into dist/; `make react-shell` copies that to lab/testsite/src/pages/react-shell/, where the origin embeds it.
import react from '@vitejs/plugin-react'
import { defineConfig } from 'vite'

export default defineConfig({
  plugins: [react()],
  build: { outDir: 'dist', assetsInlineLimit: 0, modulePreload: { polyfill: false } },
})
