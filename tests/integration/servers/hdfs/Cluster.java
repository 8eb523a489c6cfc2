import java.io.BufferedReader;
import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.HdfsConfiguration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSCluster.DataNodeProperties;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/**
 * NameNodes and DataNodes in one JVM; on request a ResourceManager and a NodeManager, too.
 *
 * <p>Arguments: folder, folder of core-site.xml and hdfs-site.xml, DataNodes, ports of the
 * NameNodes with a comma between, `yarn` or nothing. It says `ready`, then answers each line of
 * standard input with `done`, or `failed` and why. The end of the input ends it.
 */
public class Cluster {
    private static final int YARN_STARTS_WITHIN_MS = 600_000;

    private static volatile MiniYARNCluster yarn;

    private final MiniDFSCluster dfs;
    private final Deque<DataNodeProperties> stopped = new ArrayDeque<>();

    private Cluster(MiniDFSCluster dfs) {
        this.dfs = dfs;
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever Hadoop prints is for the log
        BlockingQueue<String> commands = commands();
        File confDir = new File(args[1]);
        Configuration conf = new HdfsConfiguration();
        conf.addResource(new File(confDir, "core-site.xml").toURI().toURL());
        conf.addResource(new File(confDir, "hdfs-site.xml").toURI().toURL());
        int dataNodes = Integer.parseInt(args[2]);
        Cluster cluster = new Cluster(start(conf, new File(args[0]), dataNodes, args[3]));
        if (args.length > 4) {
            startYarn(conf, confDir);
        }
        answers.println("ready");
        while (true) {
            try {
                cluster.carryOut(commands.take());
                answers.println("done");
            } catch (Exception error) {
                answers.println("failed " + error.toString().replace('\n', ' '));
            }
        }
    }

    /** Return the lines of standard input; once it ends, be it while something starts, all ends. */
    private static BlockingQueue<String> commands() {
        BlockingQueue<String> commands = new LinkedBlockingQueue<>();
        Thread reader =
                new Thread(
                        () -> {
                            try (BufferedReader in =
                                    new BufferedReader(new InputStreamReader(System.in))) {
                                in.lines().forEach(commands::add);
                            } catch (IOException | UncheckedIOException ended) {
                                // as if it had come to its end
                            }
                            end();
                        });
        reader.setDaemon(true);
        reader.start();
        return commands;
    }

    private static MiniDFSCluster start(
            Configuration conf, File folder, int dataNodes, String ports) throws Exception {
        String[] port = ports.split(",");
        File data = new File(folder, "dfs");
        MiniDFSCluster.Builder builder =
                new MiniDFSCluster.Builder(conf, data)
                        .numDataNodes(dataNodes)
                        .format(!data.exists())
                        .manageDataDfsDirs(true);
        if (port.length > 1) {
            MiniDFSNNTopology.NSConf service = new MiniDFSNNTopology.NSConf("ha");
            for (int i = 0; i < port.length; i++) {
                service.addNN(
                        new MiniDFSNNTopology.NNConf("nn" + (i + 1))
                                .setIpcPort(Integer.parseInt(port[i])));
            }
            builder.nnTopology(new MiniDFSNNTopology().addNameservice(service));
        } else {
            builder.nameNodePort(Integer.parseInt(port[0]));
        }
        MiniDFSCluster dfs = builder.build();
        if (port.length > 1) {
            dfs.transitionToActive(0);
        }
        dfs.waitActive();
        return dfs;
    }

    private static void startYarn(Configuration conf, File confDir) throws Exception {
        YarnConfiguration yarnConf = new YarnConfiguration(conf);
        yarnConf.addResource(new File(confDir, "yarn-site.xml").toURI().toURL());
        yarn = new MiniYARNCluster("yarn", 1, 1, 1);
        yarn.init(yarnConf);
        yarn.start();
        yarn.waitForNodeManagersToConnect(YARN_STARTS_WITHIN_MS);
        Configuration forClients = new Configuration(false);
        for (Map.Entry<String, String> entry : yarn.getConfig()) {
            if (entry.getKey().startsWith("yarn.")) { // the rest names classes clients do not have
                forClients.set(entry.getKey(), entry.getValue());
            }
        }
        try (OutputStream out = new FileOutputStream(new File(confDir, "yarn-site.xml"))) {
            forClients.writeXml(out); // the addresses are known only now
        }
    }

    private static void end() {
        if (yarn != null) {
            yarn.stop(); // its containers are processes of their own
        }
        Runtime.getRuntime().halt(0);
    }

    private void carryOut(String command) throws Exception {
        switch (command) {
            case "stop datanode" -> stopped.push(dfs.stopDataNode(0));
            case "start datanode" -> {
                dfs.restartDataNode(stopped.pop(), true);
                dfs.waitActive();
            }
            case "failover" -> {
                int active = dfs.getNameNode(0).isActiveState() ? 0 : 1;
                dfs.transitionToStandby(active);
                dfs.transitionToActive(1 - active);
            }
            case "stop" -> {
                if (yarn == null) { // which still needs it
                    dfs.shutdown();
                }
                end();
            }
            default -> throw new IllegalArgumentException(command);
        }
    }
}
